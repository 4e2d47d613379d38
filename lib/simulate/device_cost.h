// Seconds of what a device prices by shape: matrix products (device_matmul.h), fused attention
// (device_attention.h) and collectives (cluster/collectives.h). Not in it: what kernels and collectives take
// from one another where they run side by side. Pure; thread safe.
#pragma once

#include "cluster/collectives.h"
#include "cluster/machine.h"
#include "model/work.h"
#include "simulate/device_attention.h"

namespace trainctl::simulate {

// What kernels of a device that was measured take, over what the catalogue gives for them.
struct ShapeScales {
  double products = 1;
  double attention = 1;
  double attention_backward = 1;
  bool operator==(const ShapeScales&) const = default;
};

// Of the lists of `work`; its units are not looked at.
double DeviceSeconds(const cluster::Machine& machine, FusedAttention attention, const ShapeScales& scales,
                     const model::Work& work);

// Where the ranks of a group sit when ranks fill one node after the other.
cluster::GroupPlacement PlacementOf(int ranks, int stride, const cluster::Node& node);

}  // namespace trainctl::simulate
