// Limits of the time of a kernel on a device that do not depend on its computation: the minimum duration, the
// gap between two kernels, and the memory bandwidth. All constants come from data sheets and published
// measurements. Pure functions; thread-safe.
#pragma once

#include <cstdint>

#include "cluster/catalogue.h"

namespace trainctl::simulate {

// Minimum duration of a kernel.
inline constexpr double kKernelSeconds = 5e-6;
// Time from the end of one kernel to the first byte that the next one moves. This is also the time of a
// kernel of one element. The source is pytorch/ao torchao/testing/training/roofline_utils.py,
// KERNEL_LAUNCH_OVERHEAD_SEC, for H100.
inline constexpr double kKernelGapSeconds = 2e-6;

// Values for the forward and the backward of a kernel, usually in seconds.
struct ForwardBackward {
  double forward = 0;
  double backward = 0;  // for the gradients of the inputs and the weights together
};

// Devices of one generation have the same kernels. kAmpere includes Volta, kHopper includes Ada, kBlackwell
// includes Blackwell Ultra, and kOther is AMD's CDNA.
enum class Generation : uint8_t { kAmpere, kHopper, kBlackwell, kOther };
Generation GenerationOf(const cluster::Device& device);

// Returns the memory bandwidth of a large copy, in bytes per second. Uses the published measurement if the
// catalogue has one, and otherwise 0.85 of the data sheet's bandwidth.
double BytesPerSecond(const cluster::Device& device);

// Returns the time, in seconds, of `kernels` consecutive kernels that together read and write `bytes`.
// Returns 0 if `bytes` is 0.
double PassSeconds(const cluster::Device& device, double bytes, double kernels = 1);

}  // namespace trainctl::simulate
