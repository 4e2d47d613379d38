#include "trainer/data_files_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "trainer/progress.h"

namespace trainctl::trainer {

DataFilesCheck::DataFilesCheck(std::optional<data::FileStamps>& stamps, comm::Group& world,
                               CheckpointSaver& saver, const RunCounters& counters)
    : stamps_(stamps), world_(world), saver_(saver), counters_(counters), checked_step_(counters.step) {}

absl::Status DataFilesCheck::Run() {
  const absl::Status changed = FindChangedFile();
  double votes = changed.ok() ? 0 : 1;
  TRAINCTL_RETURN_IF_ERROR(world_.AllReduceScalars("data", absl::MakeSpan(&votes, 1)));
  if (votes == 0) {
    checked_step_ = counters_.step;
    return absl::OkStatus();
  }
  const bool saves = counters_.step > std::max<int64_t>(saver_.saved_step(), 0);
  if (saves) {
    saver_.KeepAll();  // including the last checkpoint that cannot have read the changed bytes
    TRAINCTL_RETURN_IF_ERROR(saver_.Write(SaveKind::kWanted));
  }
  TRAINCTL_RETURN_IF_ERROR(saver_.Finish());
  if (changed.ok()) return WorkerError("rank 0 found that a data file has changed");
  std::string message(changed.message());
  const bool has_suspects = saver_.saved_step() > checked_step_;
  if (saves || has_suspects) absl::StrAppend(&message, "; step ", saver_.saved_step(), " is saved");
  if (has_suspects) {
    absl::StrAppend(
        &message, ", and the steps from ", checked_step_ + 1,
        " onward may have read the changed bytes; to repeat them, move the checkpoints after step ",
        checked_step_, " out of the run folder before you resume");
  }
  return absl::Status(changed.code(), message);
}

absl::Status DataFilesCheck::EndForLackOfData(const absl::Status& own) {
  if (counters_.step > std::max<int64_t>(saver_.saved_step(), 0)) {
    TRAINCTL_RETURN_IF_ERROR(Run());
    TRAINCTL_RETURN_IF_ERROR(saver_.Write(SaveKind::kWanted));
  }
  const std::string checkpoint = saver_.FinishAndDescribe();
  if (own.ok()) return WorkerError("another rank could not read its next batch");
  return absl::Status(own.code(), absl::StrCat(own.message(), "; ", checkpoint));
}

absl::Status DataFilesCheck::FindChangedFile() {
  if (!stamps_.has_value()) return absl::OkStatus();
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<data::TouchedFile> touched, stamps_->CheckUnchanged());
  for (const data::TouchedFile& file : touched) {
    const char* const same = file.sampled ? "size and all samples of its contents are" : "bytes are";
    PrintLine(absl::StrCat("note: ", file.path, " was touched or replaced, but its ", same,
                           " the same as when the run started"));
  }
  return absl::OkStatus();
}

}  // namespace trainctl::trainer
