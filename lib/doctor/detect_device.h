// What cluster.device = "auto" means on this machine. Thread safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "doctor/doctor.h"

namespace trainctl::doctor {

struct DetectedDevice {
  std::string device = "cpu";  // a name of the catalogue, or "cpu"
  int64_t num_devices = 0;     // of it; 0 for "cpu"
  // Of one device where it has clearly less than the catalogue says (another variant, or a part of one); 0:
  // as in the catalogue.
  int64_t memory_bytes = 0;
  std::string words;  // what was found and what it was taken for, for people
};

// NVIDIA's devices by the driver's own library, or by the kernel's module where that is not there; none:
// "cpu". UsageError with the nearest names for a device that the catalogue does not have, and for devices
// that are not alike; EnvironmentError when the driver is there and refuses.
absl::StatusOr<DetectedDevice> DetectDevice(const Sources& sources = {});

}  // namespace trainctl::doctor
