// Runs one training step on this rank: forward, backward and update. Writes a profile or a trace of the steps
// in metrics.profile_steps and metrics.trace_steps. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "data/batch_source.h"
#include "device/device.h"
#include "parallel/executor.h"
#include "trainer/checkpointing.h"
#include "trainer/planned_run.h"
#include "trainer/run_worker.h"

namespace trainctl::trainer {

struct ComputedStep {
  parallel::StepResult result;
  double scheduled_lr = 0;  // learning rate of the schedule
  double lr = 0;            // the learning rate of the update: scheduled_lr rounded to fp32
};

// Borrows all arguments, which must outlive it.
class StepRunner {
 public:
  StepRunner(const WorkerDeps& deps, const device::Device& device, const PlannedRun& planned,
             parallel::Executor& executor, const RunCounters& counters);

  // Collective. Computes the step after counters.step. `batch` has this rank's sequences. Returns
  // InternalError if the first step that this process runs is not the planned one (step_hash).
  absl::StatusOr<ComputedStep> Run(const data::Batch& batch);

 private:
  parallel::UpdateOptions NextUpdate(double lr) const;
  // `step` counts from 1, as in metrics.jsonl.
  absl::StatusOr<parallel::StepResult> RunProfiled(const data::Batch& batch,
                                                   const parallel::UpdateOptions& update, int64_t step);
  absl::StatusOr<parallel::StepResult> RunTraced(const data::Batch& batch,
                                                 const parallel::UpdateOptions& update, int64_t step);
  absl::StatusOr<parallel::StepResult> Execute(const data::Batch& batch,
                                               const parallel::UpdateOptions& update);

  const WorkerDeps& deps_;
  const recipe::Recipe& recipe_;
  const device::Device& device_;
  const PlannedRun& planned_;
  parallel::Executor& executor_;
  const RunCounters& counters_;
  std::vector<bool> decay_;  // whether weight decay applies, by inventory index
};

}  // namespace trainctl::trainer
