// Estimates the time of the work whose cost on a device depends on its shape: matrix products
// (device_matmul.h), fused attention (device_attention.h) and collectives (cluster/collectives.h). The
// estimates do not include the slowdown of kernels and collectives that run at the same time. Pure functions;
// thread-safe.
#pragma once

#include "cluster/collectives.h"
#include "cluster/machine.h"
#include "model/work.h"
#include "simulate/device_attention.h"

namespace trainctl::simulate {

// Measured time divided by the estimate for the catalogue's device, by kind of kernel. 1 if not measured.
struct ShapeScales {
  double products = 1;
  double attention = 1;
  double attention_backward = 1;
  bool operator==(const ShapeScales&) const = default;
};

// Returns the time, in seconds, of the products, attention kernels and exchanges in `work`. Ignores
// work.units. `scales` multiplies the times of products and attention, but not those of exchanges.
double DeviceSeconds(const cluster::Machine& machine, FusedAttention attention, const ShapeScales& scales,
                     const model::Work& work);

// Returns how a group's ranks are spread over nodes. Neighbors in the group are `stride` ranks apart, and
// ranks fill one node before the next.
cluster::GroupPlacement PlacementOf(int ranks, int stride, const cluster::Node& node);

}  // namespace trainctl::simulate
