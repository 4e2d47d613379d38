// What cluster.device = "auto" means on this machine. Thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "doctor/doctor.h"

namespace trainctl::doctor {

// The NVIDIA devices of this machine that CUDA shows to a run, from the driver's own library, or from the
// kernel's module if there is no library.
struct ShownDevices {
  std::vector<std::string>
      models;  // the driver's name of each device, in CUDA's order; empty if none is shown
  int64_t least_memory_bytes = 0;  // of the smallest one; 0 if unknown
  std::string source;              // the library or folder that lists them
  // Not OK if CUDA_VISIBLE_DEVICES cannot be followed; then no device is shown.
  absl::Status selection = absl::OkStatus();
  std::string hidden;  // what a run does not see and why (cluster::VisibleGpus); the message of `selection`
};
// EnvironmentError when the driver is there and refuses.
absl::StatusOr<ShownDevices> FindShownDevices(const Sources& sources = {});

struct DetectedDevice {
  std::string device = "cpu";  // a name of the catalogue, or "cpu"
  int64_t num_devices = 0;     // of it; 0 for "cpu"
  // Of one device where it has clearly less than the catalogue says (another variant, or a part of one); 0:
  // as in the catalogue.
  int64_t memory_bytes = 0;
  std::string words;   // what was found and what it was taken for, for people
  std::string hidden;  // as in ShownDevices
};

// None: "cpu". UsageError with the nearest names for a device that the catalogue does not have, and for
// devices that are not alike; EnvironmentError when the driver is there and refuses, and when
// CUDA_VISIBLE_DEVICES cannot be followed.
absl::StatusOr<DetectedDevice> DetectDevice(const Sources& sources = {});

}  // namespace trainctl::doctor
