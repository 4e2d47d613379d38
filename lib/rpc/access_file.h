// How the launcher of a run on several machines is reached from another one, while the run lasts:
// `admin.json` in the run folder, which only the user who launched it can read, and `reader.json`, which
// serves to look but neither to save nor to stop, for whoever may read the folder. Thread safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rpc/identity.h"
#include "rpc/job_authority.h"

namespace trainctl::rpc {

struct LauncherAccess {
  std::string job;
  std::vector<std::string> endpoints;  // "host:port"; any of them
  Credential credential;
  std::string folder = {};  // JobFolder::id of the run folder that it was read from; not in the file
};

// What a file holds, and back; `path`: for messages. BadDataError for anything else.
std::string FormatAccess(const LauncherAccess& access);
absl::StatusOr<LauncherAccess> ParseAccess(const std::string& text, const std::string& path);

// `role` is kAdmin or kReader.
std::string AccessPath(absl::string_view run_dir, Role role);

// An admin's has mode 0600, a reader's what the umask gives; a file that is there is replaced.
absl::Status WriteAccessFile(absl::string_view run_dir, Role role, const LauncherAccess& access);
// NotFound: there is none. PermissionDenied: not for this user. EnvironmentError: others could read an
// admin's. BadDataError: it is something else.
absl::StatusOr<LauncherAccess> ReadAccessFile(absl::string_view run_dir, Role role);
// Unless it belongs to another job by now. Best effort.
void RemoveAccessFile(absl::string_view run_dir, Role role, absl::string_view job);

}  // namespace trainctl::rpc
