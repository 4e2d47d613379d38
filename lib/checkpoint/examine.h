// What a folder under `<run>/checkpoints` is worth. Whoever lists, verifies, counts, keeps or resumes
// checkpoints asks here, so that all say the same of one, in the same words. Only reads; thread safe.
//
//   for (const Examined& one : *ExamineAll(root, Depth::kManifest)) Print(one.name(), one.status);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "checkpoint/checkpoint_io.h"

namespace trainctl::checkpoint {

enum class Condition {
  kCommitted,   // its manifest is of this step and its files have their sizes; no byte was compared
  kGood,        // every byte is what was written, and every weight is finite
  kDamaged,     // not what was written, of another step, not finished, or not a folder
  kNonFinite,   // what was written, but a weight is NaN or infinite
  kUnreadable,  // cannot be judged here: a newer format, no permission
};
absl::string_view ConditionName(Condition condition);  // "committed", "good", "damaged", "non-finite", ...

enum class Depth {
  kManifest,   // reads the manifest: milliseconds, whatever the size
  kEveryByte,  // reads it all
};

struct Examined {
  CheckpointInfo info;  // `bytes` as given
  Condition condition = Condition::kDamaged;
  absl::Status status;  // why it is neither committed nor good
  int world_size = 0;   // 0 where the manifest cannot be read; num_tensors too
  size_t num_tensors = 0;

  bool usable() const { return condition == Condition::kCommitted || condition == Condition::kGood; }
  absl::string_view name() const { return ConditionName(condition); }
};

// `info.step`: as the folder's name has it; -1: it may be any.
Examined Examine(const CheckpointInfo& info, Depth depth);
// One folder, wherever it lies. A name like step-00000042 binds it to that step.
Examined ExamineFolder(const std::string& path, Depth depth);
// Everything in `root` with the name of a committed checkpoint, oldest first; none where there is no root.
absl::StatusOr<std::vector<Examined>> ExamineAll(const std::string& root, Depth depth);

struct NewestCommitted {
  int64_t step = -1;                  // -1: there is none
  absl::Status listed;                // why the root cannot be listed
  std::vector<Examined> passed_over;  // newer ones that are not, the newest first
  // "checkpoint of step 8 is damaged: ...", one for each of passed_over; why nothing was found to begin with.
  std::vector<std::string> Problems() const;
};
// Reads the manifests of those newer than `above`, from the newest down to the first that is committed. Cheap
// enough to ask each second, with `above` the one that is known.
NewestCommitted FindNewestCommitted(const std::string& root, int64_t above = -1);

// Weights of `path` that are NaN or infinite; at least one.
absl::Status NonFiniteError(const std::string& path, const std::vector<std::string>& tensors);

// The newest that is good; for each newer one that is not, a line in `warnings`. NotFound when there is none
// at all, BadDataError when no one is good. One that is unreadable is that EnvironmentError: falling back
// silently behind it would lose work. `judge`: in place of reading every byte here; its error ends the
// search.
using Judge = std::function<absl::StatusOr<Examined>(const CheckpointInfo& info)>;
absl::StatusOr<CheckpointInfo> FindNewestGood(const std::string& root, std::vector<std::string>* warnings,
                                              const Judge& judge = {});

}  // namespace trainctl::checkpoint
