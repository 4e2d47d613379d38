// Creates folders for sockets and other files that need not outlive the process. Thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

// Returns the absolute paths of the candidate parent folders: TMPDIR, if it is set, and then /tmp.
std::vector<std::string> TemporaryFolders();

// Creates a folder that only this user can enter. Uses the first of `parents` that permits it and keeps the
// path within `most_bytes` bytes. `name` is a mkdtemp pattern such as "trainctl-XXXXXX". Returns
// EnvironmentError with the reason for each parent if none is suitable.
absl::StatusOr<std::string> MakeTemporaryFolder(const std::vector<std::string>& parents,
                                                absl::string_view name, size_t most_bytes);

}  // namespace trainctl
