// What bounds a kernel on a device whatever it computes: the shortest there is, the gap between two, the
// bandwidth of its memory. Data-sheet and published constants only. Pure; thread safe.
#pragma once

#include <cstdint>

#include "cluster/catalogue.h"

namespace trainctl::simulate {

// No kernel is shorter on the device.
inline constexpr double kKernelSeconds = 5e-6;
// From the end of one kernel to the first byte of the next: a kernel of one element takes this
// (pytorch/ao torchao/testing/training/roofline_utils.py, KERNEL_LAUNCH_OVERHEAD_SEC, H100).
inline constexpr double kKernelGapSeconds = 2e-6;

struct ForwardBackward {
  double forward = 0;   // seconds
  double backward = 0;  // of the input's and the weights' gradients together
};

// What decides which kernels a device has.
enum class Generation : uint8_t { kAmpere, kHopper, kBlackwell, kOther };  // kAmpere: and before
Generation GenerationOf(const cluster::Device& device);

// Of a large copy, measured where somebody published it.
double BytesPerSecond(const cluster::Device& device);

// `kernels` one after the other that read and write `bytes` in all; 0 without bytes.
double PassSeconds(const cluster::Device& device, double bytes, double kernels = 1);

}  // namespace trainctl::simulate
