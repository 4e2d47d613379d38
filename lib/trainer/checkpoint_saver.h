// Saves the checkpoints of a run, either while training waits or in the background (background_save.h), and
// keeps the step of the last one. All ranks make the same calls in the same order. Not thread-safe.
//
// A periodic save may fail, for example because the disk is full. Training then continues, and the next save
// is attempted when it is due. Any other failure ends the run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "comm/group.h"
#include "parallel/sharded_state.h"
#include "trainer/background_save.h"
#include "trainer/checkpointing.h"
#include "trainer/fault_injector.h"
#include "trainer/planned_run.h"
#include "trainer/progress.h"
#include "trainer/run_worker.h"
#include "trainer/training_log.h"

namespace trainctl::trainer {

// Why a checkpoint is saved. kDue is a periodic save, which may be skipped. kWanted is a save at the request
// of a user, at a stop or at the end of the run, and is never skipped.
enum class SaveKind : uint8_t { kNone, kDue, kWanted };

// This rank's part of the save in progress.
struct OwnSave {
  bool in_progress = false;  // whether a save is in progress; the same on all ranks
  bool busy = false;         // whether this rank is still working on the current phase
  bool failed = false;       // whether this rank's part of the phase has failed
};

class CheckpointSaver {
 public:
  // Borrows all arguments, which must outlive it. `log` is synced before each commit, perhaps on another
  // thread.
  CheckpointSaver(const WorkerDeps& deps, const PlannedRun& planned, FaultInjector& fault,
                  const parallel::ShardedState& state, comm::Group& world, const RunCounters& counters,
                  TrainingLog& log);

  // Step of the last save, which may be in progress; -1 if there is none.
  int64_t saved_step() const { return saved_step_; }
  // Notes that the run was restored from the checkpoint of `step`.
  void ContinueFrom(int64_t step) { saved_step_ = step; }

  // Starts to measure the time until the next periodic save (checkpoint.every).
  void StartTimer();
  // Whether the time checkpoint.every has passed since the last save. False if it is not set.
  bool IsTimeUp() const;

  // Whether to skip a save of this kind because another one is in progress (checkpoint.when_busy = "skip").
  // If so, prints a note and restarts the timer.
  bool Skips(SaveKind kind);
  // Finishes the save in progress, then saves the state after counters.step, or starts to save it in the
  // background. `kind` must not be kNone. Write, Finish and Advance return an error only if it must end the
  // run.
  absl::Status Write(SaveKind kind);
  // Waits until the save in progress is committed. Does nothing if there is none.
  absl::Status Finish();
  // For the error message of a failed run. Finishes the save in progress, so that the steps before the
  // failure are kept, and describes the last checkpoint.
  std::string FinishAndDescribe();

  // Returns the state of this rank's part of the save in progress. Does not block.
  OwnSave LookAtOwn();
  // Begins the next phase of the save in progress if no rank is busy. `own` is LookAtOwn's result; all ranks
  // pass the same two flags.
  absl::Status Advance(const OwnSave& own, bool any_busy, bool any_failed);

  // Set the losses of earlier steps, or add those after counters.step, for checkpoint.keep_best. Only rank 0
  // needs them.
  void SetLosses(std::map<int64_t, double> by_step) { losses_ = std::move(by_step); }
  void NoteLosses(const EvalLosses& losses);
  // Stops the removal of older checkpoints from now on.
  void KeepAll() { keeps_all_ = true; }

 private:
  SaveOptions Options() const;
  // Returns `failure` if it must end the run, else OK. All ranks call this with the same kind.
  absl::Status HandleFailure(SaveKind kind, int64_t step, const absl::Status& failure);
  void PrintSaved(int64_t step, const Written& written) const;

  const WorkerDeps& deps_;
  const recipe::CheckpointConfig& config_;
  const PlannedRun& planned_;
  FaultInjector& fault_;
  const parallel::ShardedState& state_;
  comm::Group& world_;
  const RunCounters& counters_;
  TrainingLog& log_;
  const PhaseReporter phases_;

  int64_t saved_step_ = -1;
  int64_t saved_before_ = -1;        // saved_step_ before the last save
  SaveKind kind_ = SaveKind::kNone;  // kind of the last save
  absl::Duration last_save_time_;
  absl::Duration wait_;  // how long training waited for the last save
  std::map<int64_t, double> losses_;
  bool keeps_all_ = false;
  std::unique_ptr<BackgroundSaver> background_;  // null unless checkpoint.async
};

}  // namespace trainctl::trainer
