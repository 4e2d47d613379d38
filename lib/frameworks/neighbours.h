// What would change if one thing of a layout were another: the rows of a what-if table. Pure; thread safe.
#pragma once

#include <string>
#include <vector>

#include "frameworks/workload.h"
#include "report/page.h"

namespace trainctl::frameworks {

// The valid layouts that differ from `workload` in one choice: half or twice a degree (data parallelism takes
// up what that leaves, so that the devices and the batch stay), micro-batch, stage of sharding and its group,
// schedule, recompute; of what the framework has (framework_ways.h). The upper bound of their memory is held
// against `memory_limit_bytes`; 0: no limit. Those that fit come first, the fastest first; then the others by
// what they lack. `workload` is valid (Validate); its price is not in here.
std::vector<report::Alternative> NeighboursOf(const Workload& workload, double memory_limit_bytes);

}  // namespace trainctl::frameworks
