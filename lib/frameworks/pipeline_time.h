// Time that a pipeline takes: the real schedule played with what each stage's passes cost. Pure; thread safe
// (each thread keeps the last schedules that it built).
#pragma once

#include <vector>

#include "frameworks/layer_time.h"
#include "frameworks/workload.h"
#include "simulate/stage_costs.h"

namespace trainctl::frameworks {

struct PipelineTimes {
  // Of all micro-batches on the rank that works longest, by part.
  PassTimes busiest;
  // What the schedule takes beyond that: bubble, uneven stages, transfers between stages; less what passes
  // that are joined hide of each other's exchanges.
  double waiting_seconds = 0;
};

// What the schedule is played with.
simulate::PipelineCosts PipelineCostsOf(const Workload& workload, const std::vector<PassTimes>& stages,
                                        bool contention);

// `stages`: one micro-batch through each of the pp * virtual_stages stages, in the order of the model.
PipelineTimes TimePipeline(const Workload& workload, const std::vector<PassTimes>& stages, bool contention);

}  // namespace trainctl::frameworks
