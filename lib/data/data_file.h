// What every reader of a data file asks first, and says when it changed. Thread safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace trainctl::data {

// The size of a readable regular file. BadDataError when it is missing, a folder, a pipe or a device (opening
// those could block); EnvironmentError when permission is missing.
absl::StatusOr<int64_t> CheckDataFile(const std::string& path);

absl::Status FileChangedError(const std::string& path, int64_t opened_bytes, int64_t now_bytes);

}  // namespace trainctl::data
