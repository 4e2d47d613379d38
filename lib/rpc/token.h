// The secret of one job: whoever has it may join, use the store and stop the job. It travels in a
// file of mode 0600, never in an argument or the environment. Thread safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::rpc {

// 256 random bits of the kernel, in hexadecimal.
absl::StatusOr<std::string> MakeToken();
// EnvironmentError when the file is missing, empty, or readable by others.
absl::StatusOr<std::string> ReadToken(const std::string& path);
// Takes the same time wherever they differ.
bool SameToken(absl::string_view a, absl::string_view b);

}  // namespace trainctl::rpc
