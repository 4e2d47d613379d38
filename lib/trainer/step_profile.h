// What a device did during a step: its kernels and copies by name, with LibTorch's profiler, as Chrome's
// Trace Event Format (ui.perfetto.dev). A profiled step is a little slower, but works as every other one:
// nothing waits that would not wait without.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "device/device.h"

namespace trainctl::trainer {

// One step of one rank, while it lives; one at a time, begun and ended by the thread that runs the step.
class StepProfile {
 public:
  explicit StepProfile(const device::Device& device);
  ~StepProfile();
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;

  // Writes `step-<step>-rank-<rank>.json` in `folder`, which is made, under a temporary name first.
  absl::Status Write(const std::string& folder, int64_t step, int rank);

 private:
  bool running_ = true;
};

}  // namespace trainctl::trainer
