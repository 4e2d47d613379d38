// A secret with which one caller of a Unix socket shows who it is (token_guard.h). It travels in a file of
// mode 0600, never in an argument or the environment. Thread safe.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/assignment.h"
#include "rpc/header.h"

namespace trainctl::rpc {

// What the file of a token holds: the launch that it is good for, too.
struct Pass {
  std::string token;
  Launch launch;
};
absl::Status WritePass(const std::string& path, const Pass& pass);
// EnvironmentError when the file is missing, damaged, or readable by others; PermissionDenied when it is
// another user's.
absl::StatusOr<Pass> ReadPass(const std::string& path);

// 256 random bits of the kernel, in hexadecimal.
absl::StatusOr<std::string> MakeToken();
// Of the worker in that slot, next to `token_path`: "<token_path>-<worker id>".
std::string WorkerTokenPath(const std::string& token_path, const rendezvous::Slot& slot);
// Takes the same time wherever they differ.
bool SameToken(absl::string_view a, absl::string_view b);

}  // namespace trainctl::rpc
