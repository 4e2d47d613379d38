// What data parallelism adds to a step: reductions of gradients and gathers of parameters, as the framework
// places them (bucket by bucket beside the last backward, block by block beside all passes, or after
// everything), less what they hide behind. Pure; thread safe.
#pragma once

#include "frameworks/layer_time.h"
#include "frameworks/workload.h"

namespace trainctl::frameworks {

// Seconds of a step. What is exposed, with `spread_seconds`, is what the step pays.
struct DataParallelTimes {
  double gather_seconds = 0, exposed_gather_seconds = 0;  // parameters, about the first forward
  double reduce_seconds = 0, exposed_reduce_seconds = 0;  // gradients, about the last backward
  // Exposed bit by bit throughout the passes, and what compute loses to the exchanges beside it.
  double spread_seconds = 0;
  double total() const { return exposed_gather_seconds + exposed_reduce_seconds + spread_seconds; }
};

// `micro_batch`: one micro-batch on all stages of the first pipeline rank, whose reductions end last.
DataParallelTimes TimeDataParallel(const Workload& workload, const PassTimes& micro_batch, bool contention);

}  // namespace trainctl::frameworks
