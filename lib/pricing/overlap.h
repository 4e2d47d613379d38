// Communication that runs beside compute, and what it costs it. Pure; thread safe.
#pragma once

#include <algorithm>

#include "cluster/collectives.h"
#include "pricing/workload.h"

namespace trainctl::pricing {

// Seconds that `compute` and a `communication` beside it take beyond `compute` alone. While the communication
// runs, compute goes at `speed_left` of its speed, so that overlap is not free; what compute does not cover
// is exposed.
inline double SecondsBeyondCompute(double compute, double communication, double speed_left) {
  return std::max((1 - speed_left) * communication, communication - compute);
}

// What a collective leaves to the kernels beside it: the compute units that its channels do not occupy.
inline double SpeedLeft(const cluster::GroupPlacement& group, const Workload& workload, bool contention) {
  if (!contention) return 1;
  const double units = std::max(1.0, workload.device->compute_units.value);
  return std::max(0.5, 1 - cluster::ComputeUnitsTaken(group, *workload.node) / units);
}

// A group of `ranks` neighbours at a distance of `stride` ranks from each other.
inline cluster::GroupPlacement PlacementOf(const Workload& workload, int64_t ranks, int64_t stride) {
  const int64_t per_node = std::max<int64_t>(1, workload.node->gpus / std::max<int64_t>(1, stride));
  return {static_cast<int>(ranks), static_cast<int>(std::min(ranks, per_node))};
}

}  // namespace trainctl::pricing
