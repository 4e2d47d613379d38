#include "trainer/checkpoint_saver.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/units.h"
#include "checkpoint/checkpoint_io.h"
#include "trainer/numerics.h"

namespace trainctl::trainer {

CheckpointSaver::CheckpointSaver(const WorkerDeps& deps, const PlannedRun& planned, FaultInjector& fault,
                                 const parallel::ShardedState& state, comm::Group& world,
                                 const RunCounters& counters, TrainingLog& log)
    : deps_(deps),
      config_(deps.recipe->checkpoint),
      planned_(planned),
      fault_(fault),
      state_(state),
      world_(world),
      counters_(counters),
      log_(log),
      phases_(*deps.control, state.device(), counters) {
  if (planned.plan.setting.checkpoint_copy) background_ = std::make_unique<BackgroundSaver>(state);
}

void CheckpointSaver::StartTimer() { last_save_time_ = deps_.clock->Monotonic(); }

bool CheckpointSaver::IsTimeUp() const {
  return config_.every.has_value() && deps_.clock->Monotonic() - last_save_time_ >= *config_.every;
}

bool CheckpointSaver::Skips(SaveKind kind) {
  if (background_ == nullptr || background_->idle() || kind != SaveKind::kDue ||
      config_.when_busy != "skip") {
    return false;
  }
  if (deps_.is_first_rank()) {
    PrintLine(absl::StrCat("no checkpoint after step ", counters_.step, ": the one from step ",
                           background_->step(), " is still being written"));
  }
  last_save_time_ = deps_.clock->Monotonic();
  return true;
}

absl::Status CheckpointSaver::Write(SaveKind kind) {
  phases_.Report("save");
  fault_.Reach("save");
  const SaveOptions options = Options();
  TRAINCTL_RETURN_IF_ERROR(Finish());
  const absl::Duration begin = deps_.clock->Monotonic();
  Written written;
  if (background_ != nullptr) {
    background_->Start(options, counters_);
  } else {
    absl::StatusOr<Written> saved = SaveCheckpoint(options, state_, counters_, world_);
    if (!saved.ok()) return HandleFailure(kind, counters_.step, saved.status());
    written = *std::move(saved);
  }
  kind_ = kind;
  saved_before_ = std::exchange(saved_step_, counters_.step);
  last_save_time_ = deps_.clock->Monotonic();
  wait_ = last_save_time_ - begin;
  if (background_ == nullptr) PrintSaved(saved_step_, written);
  return absl::OkStatus();
}

SaveOptions CheckpointSaver::Options() const {
  SaveOptions options{.root = deps_.checkpoints_path,
                      .tag = deps_.save_tag,
                      .retention = {.keep = keeps_all_ ? INT64_MAX : config_.keep,
                                    .keep_every_steps = config_.keep_every_steps,
                                    .losses = losses_},
                      .description_json = DescribeNumerics(planned_.plan, deps_.world_size, state_.device())};
  options.sync_logs = [this] { return log_.Sync(); };
  options.check_folder = deps_.check_run_folder;
  options.warn = [](const std::string& what) { PrintLine("warning: " + what); };
  return options;
}

absl::Status CheckpointSaver::Finish() {
  if (background_ == nullptr || background_->idle()) return absl::OkStatus();
  const absl::Duration begin = deps_.clock->Monotonic();
  if (const absl::Status drained = background_->Drain(world_); !drained.ok()) {
    saved_step_ = saved_before_;
    TRAINCTL_RETURN_IF_ERROR(HandleFailure(kind_, background_->step(), drained));
    background_->Abandon();
    return absl::OkStatus();
  }
  wait_ += deps_.clock->Monotonic() - begin;
  PrintSaved(background_->step(), background_->written());
  return absl::OkStatus();
}

std::string CheckpointSaver::FinishAndDescribe() {
  const absl::Status saved = Finish();
  if (!saved.ok()) return absl::StrCat("the save in progress failed: ", saved.message());
  if (saved_step_ < 0) return "there is no checkpoint yet";
  // Its weights were examined when it was saved or loaded.
  return absl::StrCat("the last checkpoint, at step ", saved_step_, ", is valid");
}

OwnSave CheckpointSaver::LookAtOwn() {
  OwnSave own;
  own.in_progress = background_ != nullptr && !background_->idle();
  own.busy = own.in_progress && !background_->IsDone();
  own.failed = own.in_progress && !own.busy && !background_->result().ok();
  return own;
}

absl::Status CheckpointSaver::Advance(const OwnSave& own, bool any_busy, bool any_failed) {
  if (!own.in_progress || any_busy) return absl::OkStatus();
  if (!any_failed) {
    if (background_->Advance()) PrintSaved(background_->step(), background_->written());
    return absl::OkStatus();
  }
  saved_step_ = saved_before_;
  TRAINCTL_RETURN_IF_ERROR(
      HandleFailure(kind_, background_->step(),
                    own.failed ? background_->result() : WorkerError("another rank failed to save")));
  background_->Abandon();
  return absl::OkStatus();
}

absl::Status CheckpointSaver::HandleFailure(SaveKind kind, int64_t step, const absl::Status& failure) {
  const ExitCode code = ExitCodeFor(failure);
  const bool is_of_disk = code == ExitCode::kEnvironment || code == ExitCode::kWorkerFailed;
  if (kind != SaveKind::kDue || !is_of_disk) return failure;
  last_save_time_ = deps_.clock->Monotonic();
  if (code == ExitCode::kEnvironment) {
    PrintLine(absl::StrCat("warning: no checkpoint after step ", step, ": ", failure.message(),
                           "; training continues, and the next save will be attempted as scheduled"));
  }
  // The unfinished checkpoint occupies space that the next save needs.
  if (!deps_.is_first_rank()) return absl::OkStatus();
  TRAINCTL_RETURN_IF_ERROR(deps_.CheckRunFolder());
  if (const absl::Status removed = checkpoint::RevokeUnfinished(deps_.checkpoints_path); !removed.ok()) {
    PrintLine(absl::StrCat("warning: ", removed.message()));
  }
  return absl::OkStatus();
}

void CheckpointSaver::PrintSaved(int64_t step, const Written& written) const {
  if (!deps_.is_first_rank()) return;
  PrintLine(absl::StrFormat(
      "checkpoint saved after step %d (training waited %.3f s; this rank wrote %s in %.3f s)", step,
      absl::ToDoubleSeconds(wait_), FormatBytes(written.bytes), absl::ToDoubleSeconds(written.time)));
}

void CheckpointSaver::NoteLosses(const EvalLosses& losses) {
  const auto loss = losses.find(config_.keep_best);
  if (loss != losses.end() && loss->second.has_value()) losses_[counters_.step] = *loss->second;
}

}  // namespace trainctl::trainer
