// Communication that runs beside compute, and what it costs it. Pure; thread safe.
#pragma once

#include <algorithm>

#include "cluster/collectives.h"
#include "frameworks/workload.h"

namespace trainctl::frameworks {

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

// Times that NCCL's ring reads or writes what passes through a device: at least two, up to three with the
// user's own buffer (NVIDIA/nccl#1428).
inline constexpr double kRingTouches = 2.5;

// The same beside gathers and scatters of parameters and gradients, which run at the full rate of their links
// for long: they take that much of the memory's bandwidth too. In training, a product and attention keep 0.57
// and 0.55 of their speed beside an all-gather on A100 (ibid., 1.18 and 2.08 ms, 0.18 and 0.33), a product 47
// of 80 % on 8x H100 (NVIDIA developer forum topic 337991); the form below says 0.56 and 0.60.
inline double SpeedLeftByRing(const cluster::GroupPlacement& group, const Workload& workload,
                              bool contention) {
  constexpr double kLarge = 1e12;  // next to no latency
  const double seconds =
      cluster::CollectiveSeconds(cluster::Collective::kAllGather, kLarge, group, *workload.node);
  if (!contention || seconds <= 0) return 1;
  const double rate = cluster::BusFactor(cluster::Collective::kAllGather, group.ranks) * kLarge / seconds;
  const double memory_left = 1 - kRingTouches * rate / workload.device->memory_bandwidth.value;
  return SpeedLeft(group, workload, contention) * std::clamp(memory_left, 0.5, 1.0);
}

// A group of `ranks` neighbours at a distance of `stride` ranks from each other.
inline cluster::GroupPlacement PlacementOf(const Workload& workload, int64_t ranks, int64_t stride) {
  const int64_t per_node = std::max<int64_t>(1, workload.node->gpus / std::max<int64_t>(1, stride));
  return {static_cast<int>(ranks), static_cast<int>(std::min(ranks, per_node))};
}

}  // namespace trainctl::frameworks
