// What a device of this machine takes, for `trainctl calibrate`.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "simulate/measured_device.h"

namespace trainctl::cli {

// Of the first device, measured by a worker's process; seconds on an accelerator, a minute on a slow one.
// EnvironmentError: there is none that can be used, with the worker's reason. WorkerError: a kernel failed
// there.
absl::StatusOr<simulate::MeasuredDevice> MeasureDeviceInWorker();

// On stdout: rates, and how they compare with the catalogue's where it has the device.
void PrintMeasured(const simulate::MeasuredDevice& device);

// "712 GB/s" of what takes `seconds_per_unit` bytes; "2.1 us each" of what takes a millionth of a second or
// more; "free" of what takes nothing.
std::string RateText(double seconds_per_unit, const char* unit);

}  // namespace trainctl::cli
