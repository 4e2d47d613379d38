// Time of attention's kernels: the published rate of each kernel on each generation, and how few tiles of
// queries or keys leave compute units idle. Pure; thread safe.
#pragma once

#include "pricing/layer_work.h"
#include "pricing/workload.h"

namespace trainctl::pricing {

struct ForwardBackward {
  double forward = 0;   // seconds
  double backward = 0;  // of the input's and the weights' gradients together
};

// `item` is a WorkItem of kind kAttention; the framework of the workload chooses the kernel.
ForwardBackward AttentionSeconds(const WorkItem& item, const Workload& workload);

}  // namespace trainctl::pricing
