// How long a device takes, for choices and rates that are measured.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "device/device.h"

namespace trainctl::device {

// Seconds until what `pass` queues on this thread's stream is done; nothing else may be queued there. Throws
// what the pass throws, and std::runtime_error with what a kernel reported.
double PassSeconds(const Device& device, const std::function<void()>& pass);

// Of one pass: the best of five times, each of as many passes as take 5 ms, 20 at most, after two that count
// for nothing: libraries choose their kernels in the first.
double BestPassSeconds(const Device& device, const std::function<void()>& pass);

// The duration of one pass in a long run: the median of five measurements after half a second of warm-up. By
// then a power-limited device has lowered its clock.
double SteadyPassSeconds(const Device& device, const std::function<void()>& pass);

// A pass as long as this is timed well: sizes that double until one is keep a slow device for seconds only.
inline constexpr double kLongPassSeconds = 1e-3;

// That a copy within the device's memory reads and writes, together: of 1 GiB, or less where that is long
// enough.
double CopyBytesPerSecond(const Device& device);

// [rows, columns] of the standard normal distribution: products of zeros draw less power, so that a device
// computes them faster. A few rows, repeated: drawing them takes the host's time.
at::Tensor RandomRows(const Device& device, int64_t rows, int64_t columns, at::ScalarType dtype);

}  // namespace trainctl::device
