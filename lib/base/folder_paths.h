// Makes paths absolute and finds existing parent folders. Thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl {

// Returns EnvironmentError if this process's working directory has been removed.
absl::Status CheckWorkingFolder();
// Returns `path`, interpreted relative to `folder`, as an absolute and normalized path; for example,
// "/a/./b/../c/" becomes "/a/c". Does not resolve links.
std::string AbsolutePath(absl::string_view path, absl::string_view folder);
// Returns `path`, interpreted relative to this process's working directory. Returns EnvironmentError if
// `path` is relative and that directory has been removed.
absl::StatusOr<std::string> AbsolutePath(const std::string& path);
// Returns `folder` or its nearest ancestor that exists. Returns EnvironmentError if a file is in the way or
// if this user may not create files there.
absl::StatusOr<std::string> NearestFolder(const std::string& folder);

}  // namespace trainctl
