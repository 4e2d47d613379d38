// The timeline of a step: when each instruction runs, and how much memory is allocated at each time. The
// drawings, traces and pages of plans show this timeline. Pure functions; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "layout/ledger.h"
#include "model/architecture.h"
#include "schedule/build_step.h"
#include "simulate/cost.h"

namespace trainctl::simulate {

// Bytes allocated from `time_s` until the next sample, by schedule::Category. Activations include the
// temporaries of the current instruction.
struct MemorySample {
  double time_s = 0;
  std::array<int64_t, schedule::kNumCategories> bytes = {};
};

struct Timeline {
  std::vector<InstructionTime> times;  // one per instruction
  // Samples at the start and end of each compute instruction. They are in order of time unless passes are
  // joined. Without a pipeline, the highest total is the peak memory (SimulateMemory).
  std::vector<MemorySample> memory;
  double end_s = 0;         // end of the last instruction of the class
  double step_seconds = 0;  // end_s plus the fixed cost of a step, such as reading data and logging
};

// Returns the timeline of class `own_class`. `step` must have all its micro-batches.
Timeline PlayStep(const schedule::Step& step, const layout::Ledger& ledger,
                  const schedule::BuildOptions& options, const Rates& rates, int own_class = 0);

}  // namespace trainctl::simulate
