// How the launcher of a run on several machines is reached from another one: `admin.json` in the run folder,
// which only the user who launched it can read, while the run lasts. Thread safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rpc/job_authority.h"

namespace trainctl::rpc {

inline constexpr char kAdminFileName[] = "admin.json";

struct AdminAccess {
  std::string job;
  std::vector<std::string> endpoints;  // "host:port"; any of them
  Credential credential;
};

// What the file holds, and back; `path`: for messages. BadDataError for anything else.
std::string FormatAdminAccess(const AdminAccess& access);
absl::StatusOr<AdminAccess> ParseAdminAccess(const std::string& text, const std::string& path);

// Mode 0600; a file that is there is replaced.
absl::Status WriteAdminFile(const std::string& path, const AdminAccess& access);
// NotFound: there is none. EnvironmentError: it cannot be read, or others could; BadDataError: it is
// something else.
absl::StatusOr<AdminAccess> ReadAdminFile(const std::string& path);
// Unless it belongs to another job by now. Best effort.
void RemoveAdminFile(const std::string& path, absl::string_view job);

}  // namespace trainctl::rpc
