// Unix sockets whose path may be longer than the kernel's limit. Thread-safe.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace trainctl {

// Maximum length of a socket's path, without its terminating zero byte.
inline constexpr size_t kMaxSocketPathBytes = 107;

// Returns a path to the socket at `path` with at most kMaxSocketPathBytes bytes: `path` itself or, if that is
// too long, one through a descriptor of its folder. The latter is valid in this process only, for as long as
// the process runs. Returns EnvironmentError if the folder cannot be opened or the socket's name is too long.
absl::StatusOr<std::string> ShortSocketPath(const std::string& path);

// Creates a socket at `path` that only this user can connect to, and returns its descriptor: a nonblocking
// stream socket that does not listen yet. Returns EnvironmentError if `path` exists, or if the file system
// has no sockets or cannot keep other users out.
absl::StatusOr<int> BindPrivateSocket(const std::string& path);

}  // namespace trainctl
