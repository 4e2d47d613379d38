// What data parallelism adds to a step: reductions of gradients and gathers of parameters, as the framework
// places them (bucket by bucket beside the last backward, block by block beside all passes, or after
// everything), less what they hide behind. Pure; thread safe.
#pragma once

#include "pricing/layer_time.h"
#include "pricing/workload.h"

namespace trainctl::pricing {

// `micro_batch`: one micro-batch on all stages of the first pipeline rank, whose reductions end last.
double DataParallelSeconds(const Workload& workload, const PassTimes& micro_batch, bool contention);

}  // namespace trainctl::pricing
