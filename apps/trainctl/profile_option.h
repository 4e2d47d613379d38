// What `score`, `calibrate` and `plan` read alike: tables of measured runs, and hardware profiles.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frameworks/hardware_profile.h"
#include "published/runs.h"

namespace trainctl::cli {

// UsageError if there is no such file, or a folder in its place.
absl::StatusOr<std::string> ReadFileOfUser(const std::string& path);

// Files that the table at `path` names: from its folder, unless their path is absolute.
// Adds each that is read to `read`, unless it is null.
published::FileReader FilesNextTo(const std::string& path, std::vector<std::string>* read = nullptr);

// With the files that the table names in `read`, unless it is null.
absl::StatusOr<std::vector<published::PublishedRun>> ReadRuns(const std::string& path,
                                                              std::vector<std::string>* read = nullptr);
absl::StatusOr<frameworks::HardwareProfile> ReadProfile(const std::string& path);

}  // namespace trainctl::cli
