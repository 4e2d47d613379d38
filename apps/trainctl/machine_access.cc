#include "apps/trainctl/machine_access.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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

recipe::Access PlanAccess(std::vector<std::string>* missing) {
  recipe::Access access = MachineAccess();
  access.environment = [missing, real = access.environment](const std::string& name) {
    const std::optional<std::string> value = real(name);
    if (value.has_value()) return value;
    missing->push_back(absl::StrCat("the variable ", name, " is not set"));
    return std::optional<std::string>(absl::StrCat("${", name, "}"));  // seen in what is said of the path
  };
  return access;
}

}  // namespace trainctl::cli
