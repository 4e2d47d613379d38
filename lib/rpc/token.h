// A secret that identifies one caller on a Unix socket (token_guard.h). It is passed in a file with mode
// 0600, never in an argument or environment variable. Thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/assignment.h"
#include "rpc/header.h"

namespace trainctl::rpc {

// The content of a token file: the token and the launch for which it is valid.
struct Pass {
  std::string token;
  Launch launch;
};
absl::Status WritePass(const std::string& path, const Pass& pass);
// Reads a token file. Returns EnvironmentError if the file is missing, damaged or readable by others, and
// PermissionDenied if it belongs to another user.
absl::StatusOr<Pass> ReadPass(const std::string& path);

// Creates a token of 256 random bits from the kernel, in hexadecimal.
absl::StatusOr<std::string> MakeToken();
// Returns the path of the token file for a slot's worker: "<token_path>-<worker id>".
std::string WorkerTokenPath(const std::string& token_path, const rendezvous::Slot& slot);
// Whether two tokens are equal. Compares in constant time.
bool SameToken(absl::string_view a, absl::string_view b);

}  // namespace trainctl::rpc
