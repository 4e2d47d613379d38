// A step as it plays: when each instruction runs, and what memory lives after it. What
// plans draw, trace and show on a page is this. Pure; thread safe.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "layout/ledger.h"
#include "model/model_spec.h"
#include "schedule/build_step.h"
#include "simulate/cost.h"

namespace trainctl::simulate {

// Bytes that live from `time_s` on, by category; activations with the temporaries of the instruction under
// way.
struct MemorySample {
  double time_s = 0;
  std::array<int64_t, schedule::kNumCategories> bytes = {};
};

struct Timeline {
  std::vector<InstructionTime> times;  // by instruction
  // In the order of time where no passes are joined; its highest sum is the step's peak.
  std::vector<MemorySample> memory;
  double end_s = 0;         // of the last instruction
  double step_seconds = 0;  // with what a step takes besides its instructions: data, log
};

// Of one class, in a step with all its micro-batches.
Timeline PlayStep(const schedule::Step& step, const model::ModelSpec& spec, const layout::Ledger& ledger,
                  const schedule::BuildOptions& options, const Rates& rates, int own_class = 0);

}  // namespace trainctl::simulate
