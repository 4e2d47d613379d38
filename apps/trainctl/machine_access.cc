#include "apps/trainctl/machine_access.h"

#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "apps/trainctl/host_of_run.h"
#include "apps/trainctl/progress_view.h"
#include "base/status.h"
#include "data/batch_source.h"
#include "doctor/detect_device.h"

namespace trainctl::cli {

recipe::Access MachineAccess(data::KeptDocuments* kept) {
  recipe::Access access = recipe::RealAccess();
  access.find_device = []() -> absl::StatusOr<recipe::FoundDevice> {
    TRAINCTL_ASSIGN_OR_RETURN(const doctor::DetectedDevice found, doctor::DetectDevice());
    return recipe::FoundDevice{found.device, found.num_devices, found.memory_bytes, found.words,
                               SharesDevices() ? "" : found.hidden};
  };
  access.count_epoch_tokens = [kept](const recipe::Recipe& recipe) {
    ProgressView view(::isatty(STDERR_FILENO) != 0);
    return data::CountEpochTokens(
        recipe,
        {.progress = [&view](int64_t done_bytes, int64_t total_bytes) { view.Show(done_bytes, total_bytes); },
         .kept = kept});
  };
  return access;
}

recipe::Access PlanAccess(std::vector<std::string>* missing, data::KeptDocuments* kept) {
  recipe::Access access = MachineAccess(kept);
  access.environment = [missing, real = access.environment](const std::string& name) {
    const std::optional<std::string> value = real(name);
    if (value.has_value()) return value;
    missing->push_back(absl::StrCat("the environment variable ", name, " is not set"));
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
