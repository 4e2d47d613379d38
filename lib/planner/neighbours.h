// What would change if one thing of a layout were another: the rows of a what-if table. Pure; thread safe.
#pragma once

#include <string>
#include <vector>

#include "pricing/workload.h"

namespace trainctl::planner {

struct Neighbour {
  std::string name;  // "tp 8 -> 4"
  bool fits = true;
  double device_bytes = 0;  // at the peak of the rank that needs most; 0: not priced
  double step_seconds = 0;  // 0: not priced
  std::string reason;       // what it would cost and save, or by how much it does not fit
};

// The valid layouts that differ from `workload` in one choice: half or twice a degree (data parallelism takes
// up what that leaves, so that the devices and the batch stay), micro-batch, stage of sharding and its group,
// schedule, recompute; of what the framework has (framework_ways.h). The upper bound of their memory is held
// against `memory_limit_bytes`; 0: no limit. Those that fit come first, the fastest first; then the others by
// what they lack. `workload` is valid (pricing::Validate); its price is not in here.
std::vector<Neighbour> NeighboursOf(const pricing::Workload& workload, double memory_limit_bytes);

}  // namespace trainctl::planner
