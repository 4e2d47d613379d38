// Measures how fast a device works: to choose between kernels, and to calibrate the rates of the planner. A
// pass is a function that queues work on the calling thread's stream. All functions wait for the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "device/device.h"

namespace trainctl::device {

// Returns the seconds from the call of `pass` until the work that it queues on this thread's stream is done.
// No other work may be queued there. Throws what `pass` throws, and std::runtime_error if the device reports
// a failure.
double PassSeconds(const Device& device, const std::function<void()>& pass);

// Returns the seconds per pass, as the best of five measurements. Each measurement covers as many passes as
// fit into 5 ms, but at least 1 and at most 20. Two passes that are not counted come first, because libraries
// choose their kernels in the first pass.
double BestPassSeconds(const Device& device, const std::function<void()>& pass);

// Returns the seconds per pass in a long run: the median of five measurements, as in BestPassSeconds, after
// half a second of warm-up. By then a power-limited device has lowered its clock.
double SteadyPassSeconds(const Device& device, const std::function<void()>& pass);

// A pass that takes at least this long can be timed accurately. Callers double the size of a problem until
// its pass is this long, so that a slow device needs only seconds.
inline constexpr double kLongPassSeconds = 1e-3;

// Returns the bandwidth of a copy within the device's memory: bytes read plus bytes written, per second.
// Copies 16 MiB or more, doubling the size up to 1 GiB until a copy takes kLongPassSeconds.
double CopyBytesPerSecond(const Device& device);

// Returns random values of the standard normal distribution on the device, with shape [rows, columns]. Zeros
// would distort timings, because their products draw less power and a device computes them faster. Only the
// first 512 rows are drawn and then repeated, because the host draws them.
at::Tensor RandomRows(const Device& device, int64_t rows, int64_t columns, at::ScalarType dtype);

}  // namespace trainctl::device
