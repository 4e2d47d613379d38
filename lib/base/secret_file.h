// Secrets, and files that nobody but their owner may read. Thread safe.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

// Random bits of the kernel, in hexadecimal: 2 x `num_bytes` characters.
absl::StatusOr<std::string> RandomHex(size_t num_bytes);

// Makes the file anew with mode 0600, in the place of whatever was there: who had that open reads nothing of
// this.
absl::Status WriteSecretFile(const std::string& path, absl::string_view contents);

}  // namespace trainctl
