// Runs a layout on a small model, step by step with the executor that trains, and gathers what came of it:
// what the equivalence matrix and `trainctl verify` hold against one process.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "comm/communicator.h"
#include "device/device.h"
#include "layout/layout.h"
#include "model/model_spec.h"
#include "parallel/executor.h"
#include "schedule/layout_step.h"
#include "verify/batch.h"
#include "verify/outcome.h"

namespace trainctl::verify {

struct Trial {
  model::ModelSpec spec;
  layout::Layout layout;
  schedule::StepSetting setting;
  // Of each step; apply: whether there are updates. Update numbers are counted here.
  parallel::UpdateOptions update;
  int num_steps = 1;
};

// What hyper-parameters a trial of an optimizer takes: its defaults, with a rate at which the parameters' own
// rounding is small beside the update.
parallel::UpdateOptions UpdateOf(const optim::Optimizer& optimizer, size_t num_parameters);

// An epsilon of AdamW, `least` or more, beside which gradients that are rounding alone are nothing: the first
// updates would be rounding, too. `alone`: what one process came to.
float EpsAboveRounding(float least, const Outcome& alone, int64_t numel);

// Collective over `world`, all ranks of the communicator. `batches`: one a step, the same on every rank.
// `fault`: what befalls the collectives of the steps. Rank 0's outcome is complete when it returns.
absl::Status RunTrial(const Trial& trial, const device::Device& device, comm::Communicator& communicator,
                      comm::Group& world, absl::Span<const Batch> batches, comm::FaultHook fault,
                      Outcome& outcome);

// The same trial on one process: all sequences of a step at once, nothing sharded.
Trial OnOneProcess(const Trial& trial);

}  // namespace trainctl::verify
