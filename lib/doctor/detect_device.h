// What cluster.device = "auto" means on this machine. Thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "doctor/doctor.h"

namespace trainctl::doctor {

// NVIDIA's devices of this machine, by the driver's own library, or by the kernel's module where that is not
// there.
struct ShownDevices {
  std::vector<std::string> models;  // as the driver calls them, one for each device; empty: there are none
  int64_t least_memory_bytes = 0;   // of one of them; 0: unknown
  std::string source;               // who told
};
// EnvironmentError when the driver is there and refuses.
absl::StatusOr<ShownDevices> FindShownDevices(const Sources& sources = {});

struct DetectedDevice {
  std::string device = "cpu";  // a name of the catalogue, or "cpu"
  int64_t num_devices = 0;     // of it; 0 for "cpu"
  // Of one device where it has clearly less than the catalogue says (another variant, or a part of one); 0:
  // as in the catalogue.
  int64_t memory_bytes = 0;
  std::string words;  // what was found and what it was taken for, for people
};

// None: "cpu". UsageError with the nearest names for a device that the catalogue does not have, and for
// devices that are not alike; EnvironmentError when the driver is there and refuses.
absl::StatusOr<DetectedDevice> DetectDevice(const Sources& sources = {});

}  // namespace trainctl::doctor
