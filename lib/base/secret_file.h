// Creates secrets, and files that only their owner can read. Thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

// Returns `num_bytes` random bytes from the kernel as 2 * `num_bytes` hexadecimal digits.
absl::StatusOr<std::string> RandomHex(size_t num_bytes);

// Creates the file with mode 0600, replacing any existing one. A process that has the old file open cannot
// read the new contents.
absl::Status WriteSecretFile(const std::string& path, absl::string_view contents);

}  // namespace trainctl
