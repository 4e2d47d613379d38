// Counts the steps that do not update the weights, and ends a run that no longer makes updates. A step makes
// no update if its loss or gradients are not finite, or if no target in its batch counts toward the loss. Not
// thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "comm/group.h"
#include "parallel/sharded_state.h"
#include "trainer/checkpoint_saver.h"
#include "trainer/checkpointing.h"
#include "trainer/run_worker.h"
#include "trainer/step_runner.h"

namespace trainctl::trainer {

// Borrows all arguments, which must outlive it. The results of steps are the same on every rank, so all ranks
// make the same decisions.
class UpdateWatch {
 public:
  UpdateWatch(const WorkerDeps& deps, const parallel::ShardedState& state, comm::Group& world,
              CheckpointSaver& saver, RunCounters& counters);

  // Call CheckFinite and Count for each computed step, before counters.step is incremented.
  // Collective. Returns CheckFailedError if the step's loss or gradients are not finite, unless
  // train.on_nonfinite is "skip".
  absl::Status CheckFinite(const ComputedStep& computed);
  // Updates counters.updates and counters.skipped. Prints a warning on rank 0 if no target counts.
  void Count(const parallel::StepResult& result);

  // Whether too many consecutive steps made no update (optim/update_limits.h). Call this after counters.step
  // is incremented.
  bool HasStalled() const;
  // Collective. Returns the error that ends a stalled run: BadDataError if no targets count, CheckFailedError
  // if updates were not finite. `computed` is the last step.
  absl::Status StallError(const ComputedStep& computed);

  // Prints warnings about steps without an update, at the end of a run. Call this only on rank 0.
  void PrintSummary() const;

 private:
  bool HasSkippedTooMany() const;

  const WorkerDeps& deps_;
  const parallel::ShardedState& state_;
  comm::Group& world_;
  CheckpointSaver& saver_;
  RunCounters& counters_;
  int64_t skipped_in_a_row_ = 0;  // updates that were not finite, since the last update of this start
  int64_t without_targets_in_a_row_ = 0;
};

}  // namespace trainctl::trainer
