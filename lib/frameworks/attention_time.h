// Time of attention with the kernels that a framework runs: a fused one (simulate/device_attention.h), or
// products with the scores in memory between them. Pure; thread safe.
#pragma once

#include "frameworks/layer_work.h"
#include "frameworks/workload.h"
#include "simulate/device_kernels.h"

namespace trainctl::frameworks {

using simulate::ForwardBackward;

// `item` is a WorkItem of kind kAttention; the framework of the workload chooses the kernel.
ForwardBackward AttentionSeconds(const WorkItem& item, const Workload& workload);

}  // namespace trainctl::frameworks
