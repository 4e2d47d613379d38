#include "apps/trainctl/machine_access.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "apps/trainctl/host_of_run.h"
#include "base/status.h"
#include "doctor/detect_device.h"

namespace trainctl::cli {

recipe::Access MachineAccess() {
  recipe::Access access = recipe::RealAccess();
  access.find_device = []() -> absl::StatusOr<recipe::FoundDevice> {
    TRAINCTL_ASSIGN_OR_RETURN(const doctor::DetectedDevice found, doctor::DetectDevice());
    return recipe::FoundDevice{found.device, found.num_devices, found.memory_bytes, found.words,
                               SharesDevices() ? "" : found.hidden};
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

recipe::Access Recording(recipe::Access access, std::vector<std::string>* read) {
  access.read_file = [read, real = std::move(access.read_file)](const std::string& path) {
    read->push_back(path);
    return real(path);
  };
  access.expand_glob = [read, real = std::move(access.expand_glob)](const std::string& pattern) {
    absl::StatusOr<std::vector<std::string>> files = real(pattern);
    if (files.ok()) read->insert(read->end(), files->begin(), files->end());
    return files;
  };
  return access;
}

}  // namespace trainctl::cli
