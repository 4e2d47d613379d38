// The fingerprint of one file. Thread safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "data/batch_source.h"

namespace trainctl::data {

// Reads the whole file once. BadDataError or EnvironmentError names it.
absl::StatusOr<FileFingerprint> FingerprintFile(const std::string& path);

}  // namespace trainctl::data
