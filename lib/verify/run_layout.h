// Runs a layout on a small model, step by step with the executor that trains, and gathers the results. The
// equivalence matrix and `trainctl verify` compare these with one process.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "comm/communicator.h"
#include "device/device.h"
#include "layout/layout.h"
#include "model/architecture.h"
#include "parallel/executor.h"
#include "schedule/layout_step.h"
#include "verify/batch.h"
#include "verify/outcome.h"

namespace trainctl::verify {

struct Trial {
  model::Architecture spec;
  layout::Layout layout;
  schedule::StepSetting setting;
  // Options of each step. `apply` says whether parameters are updated. RunTrial sets update_number.
  parallel::UpdateOptions update;
  int num_steps = 1;
};

// The hyper-parameters for a trial of an optimizer: its defaults, with a learning rate at which the rounding
// of the parameters is small compared with the update.
parallel::UpdateOptions UpdateOf(const optim::Optimizer& optimizer, size_t num_parameters);

// An epsilon for AdamW, at least `least`, that is large compared with gradients that are only rounding;
// otherwise the first updates would be rounding, too. `alone` is the outcome of one process.
float EpsAboveRounding(float least, const Outcome& alone, int64_t numel);

// Collective over `world`, which has all ranks of the communicator. `batches` has one batch per step, the
// same on every rank. `fault` is applied to the collectives of the steps. Rank 0's outcome is complete when
// this returns.
absl::Status RunTrial(const Trial& trial, const device::Device& device, comm::Communicator& communicator,
                      comm::Group& world, absl::Span<const Batch> batches, comm::FaultHook fault,
                      Outcome& outcome);

// The same trial on one process: all sequences of a step at once, nothing sharded.
Trial OnOneProcess(const Trial& trial);

}  // namespace trainctl::verify
