// Profiles a step with LibTorch's profiler. Writes the kernels and copies of the device by name in Chrome's
// Trace Event Format, which ui.perfetto.dev can show. A profiled step is slightly slower than others, but has
// no additional synchronization.
//
//   StepProfile profile(device);
//   ...  // run the step
//   TRAINCTL_RETURN_IF_ERROR(profile.Write(folder, step, rank));
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "device/device.h"

namespace trainctl::trainer {

// Profiles one step of one rank, from the constructor to Write. Only one may exist at a time. The thread that
// runs the step creates, writes and destroys it.
class StepProfile {
 public:
  explicit StepProfile(const device::Device& device);
  ~StepProfile();
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;

  // Ends the profile and writes `folder`/step-<step>-rank-<rank>.json. Creates the folder if necessary.
  // Writes to a temporary file first and renames it. Call this at most once. Returns EnvironmentError if the
  // file cannot be written.
  absl::Status Write(const std::string& folder, int64_t step, int rank);

 private:
  bool running_ = true;
};

}  // namespace trainctl::trainer
