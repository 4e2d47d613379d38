// Resolves cluster.device = "auto" on this machine. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "doctor/doctor.h"

namespace trainctl::doctor {

// The NVIDIA devices that CUDA makes visible to a run on this machine. They are listed by the driver's
// library or, if there is none, by the kernel module.
struct ShownDevices {
  // The driver's name for each device, in CUDA's order. Empty if no device is visible.
  std::vector<std::string> models;
  int64_t least_memory_bytes = 0;  // memory of the smallest device; 0 if unknown
  std::string source;              // library or folder that lists the devices
  // Error if CUDA_VISIBLE_DEVICES cannot be applied; in that case no device is visible.
  absl::Status selection = absl::OkStatus();
  // The devices that a run cannot see, and the reason (cluster::VisibleGpus), or the message of `selection`.
  std::string hidden;
};
// Finds the visible devices. Returns EnvironmentError if the driver is installed but fails.
absl::StatusOr<ShownDevices> FindShownDevices(const Sources& sources = {});

struct DetectedDevice {
  std::string device = "cpu";  // name in the catalogue, or "cpu"
  int64_t num_devices = 0;     // number of such devices; 0 for "cpu"
  // Memory of one device if it is clearly less than in the catalogue, because the device is another variant
  // or a partition of a device. 0 to use the catalogue's value.
  int64_t memory_bytes = 0;
  std::string words;   // human-readable description of what was found and how it was interpreted
  std::string hidden;  // same as ShownDevices::hidden
};

// Detects the devices that a run would use, or "cpu" if there are none. Returns UsageError if a device is not
// in the catalogue (the message lists the closest names) or if the devices are of different kinds. Returns
// EnvironmentError if the driver is installed but fails, or if CUDA_VISIBLE_DEVICES cannot be applied.
absl::StatusOr<DetectedDevice> DetectDevice(const Sources& sources = {});

}  // namespace trainctl::doctor
