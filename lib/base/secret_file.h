// Files that nobody but their owner may read. Thread safe.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainctl {

// Makes the file anew with mode 0600, in the place of whatever was there: who had that open reads nothing of
// this.
absl::Status WriteSecretFile(const std::string& path, absl::string_view contents);

}  // namespace trainctl
