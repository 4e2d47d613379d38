// Files in a run folder that let other machines reach the launcher of a run on several machines.
// `admin.json`, readable only by the user who launched the run, grants full access. `reader.json`, readable
// by everyone with access to the folder, grants access to the status but not to save or stop. Both files
// exist only while the run lasts. Thread-safe.
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
  std::vector<std::string> endpoints;  // "host:port" each; any of them works
  Credential credential;
  // JobFolder::id of the run folder from which the file was read. Not stored in the file.
  std::string folder = {};
};

// Formats or parses the content of an access file. `path` is only used in error messages. ParseAccess returns
// BadDataError if `text` is not an access file.
std::string FormatAccess(const LauncherAccess& access);
absl::StatusOr<LauncherAccess> ParseAccess(const std::string& text, const std::string& path);

// Returns the path of the file for `role`, which must be kAdmin or kReader.
std::string AccessPath(absl::string_view run_dir, Role role);

// Writes the file for `role`, replacing any existing one. The admin file has mode 0600; the mode of the
// reader file follows the umask.
absl::Status WriteAccessFile(absl::string_view run_dir, Role role, const LauncherAccess& access);
// Reads the file for `role`. Returns NotFound if it does not exist, PermissionDenied if this user may not
// read it, EnvironmentError if an admin file is readable by others, and BadDataError if it is not an access
// file.
absl::StatusOr<LauncherAccess> ReadAccessFile(absl::string_view run_dir, Role role);
// Removes the file for `role`, unless it now belongs to another job. Best-effort.
void RemoveAccessFile(absl::string_view run_dir, Role role, absl::string_view job);

}  // namespace trainctl::rpc
