// What a device's attention kernels take, where it has two for sequences of one document each: which one is
// faster is a matter of the device and the shape.
#pragma once

#include <optional>

#include "device/device.h"
#include "nn/attention.h"

namespace trainctl::nn {

// Seconds of the passes over a micro-batch.
struct ForwardBackward {
  double forward = 0;
  double backward = 0;
  double both() const { return forward + backward; }
};

struct AttentionSeconds {
  ForwardBackward cudnn;  // infinite: cuDNN has no kernel for the shape
  ForwardBackward flash;
};

// Of random values in bf16, the best of a few passes of each, which have the device to themselves. nullopt:
// the device does not have both. Takes memory for a layer's attention meanwhile. May throw, as ATen does.
std::optional<AttentionSeconds> TimeAttention(const device::Device& device, const AttentionShape& shape);

// From now on cuDNN's kernel is used where it serves (the default), or is not, by the whole process. Where
// flash attention is used for what cuDNN's has begun, nothing fits: not between forward and backward.
void UseCudnnAttention(bool use);

}  // namespace trainctl::nn
