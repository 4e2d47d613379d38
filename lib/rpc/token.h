// A secret with which one caller of a Unix socket shows who it is (token_guard.h). It travels in a file of
// mode 0600, never in an argument or the environment. Thread safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rendezvous/assignment.h"

namespace trainctl::rpc {

// 256 random bits of the kernel, in hexadecimal.
absl::StatusOr<std::string> MakeToken();
// EnvironmentError when the file is missing, empty, or readable by others.
absl::StatusOr<std::string> ReadToken(const std::string& path);
// Of the worker in that slot, next to `token_path`: "<token_path>-<worker id>".
std::string WorkerTokenPath(const std::string& token_path, const rendezvous::Slot& slot);
// Takes the same time wherever they differ.
bool SameToken(absl::string_view a, absl::string_view b);

}  // namespace trainctl::rpc
