// The fingerprint of one file. Thread safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "data/batch_source.h"

namespace trainctl::data {

// Reads the whole file once, whatever its size. BadDataError or EnvironmentError names it.
absl::StatusOr<FileFingerprint> FingerprintFile(const std::string& path);

// As Fingerprint does it: of a large file, pieces. The first begins at byte 0, the last ends at the file's
// end, the others lie at equal distances (rounded down to a byte).
absl::StatusOr<FileFingerprint> QuickFingerprintFile(const std::string& path);

}  // namespace trainctl::data
