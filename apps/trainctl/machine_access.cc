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
  access.environment = [real = access.environment](const std::string& name) {
    const std::optional<std::string> value = real(name);
    return value.has_value() ? value : absl::StrCat("${", name, "}");  // seen in what is said of the path
  };
  access.expand_glob = [missing, real = access.expand_glob](const std::string& pattern) {
    absl::StatusOr<std::vector<std::string>> files = real(pattern);
    if (files.ok()) return files;
    missing->push_back(absl::StrCat(files.status().message(), "; planned without it, a launch needs it"));
    return absl::StatusOr<std::vector<std::string>>({pattern});
  };
  return access;
}

}  // namespace trainctl::cli
