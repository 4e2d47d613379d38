// Measures the two attention kernels of a device for sequences of one document each: cuDNN's and flash
// attention. Which of them is faster depends on the device and the shape.
#pragma once

#include <optional>

#include "device/device.h"
#include "nn/attention.h"

namespace trainctl::nn {

// Seconds of each pass over a micro-batch.
struct ForwardBackward {
  double forward = 0;
  double backward = 0;
  double both() const { return forward + backward; }
};

struct AttentionSeconds {
  ForwardBackward cudnn;  // infinite if cuDNN has no kernel for the shape
  ForwardBackward flash;
};

// Runs both kernels on random bf16 values, and returns the best of a few passes of each. The device must be
// otherwise idle. Returns nullopt if CudnnServes (attention.h) is false for the shape, so that the device
// does not have the choice. Temporarily allocates the memory of one layer's attention. May throw ATen's
// exceptions.
std::optional<AttentionSeconds> TimeAttention(const device::Device& device, const AttentionShape& shape);

// Sets whether this process uses cuDNN's kernel if it supports the shape (the default), or never. Do not call
// this between a forward and its backward: flash attention cannot use what cuDNN's forward has stored.
void UseCudnnAttention(bool use);

}  // namespace trainctl::nn
