#include "apps/trainctl/machine_access.h"

#include "base/status.h"
#include "doctor/detect_device.h"

namespace trainctl::cli {

recipe::Access MachineAccess() {
  recipe::Access access = recipe::RealAccess();
  access.find_device = []() -> absl::StatusOr<recipe::FoundDevice> {
    TRAINCTL_ASSIGN_OR_RETURN(const doctor::DetectedDevice found, doctor::DetectDevice());
    return recipe::FoundDevice{found.device, found.num_devices, found.memory_bytes, found.words};
  };
  return access;
}

}  // namespace trainctl::cli
