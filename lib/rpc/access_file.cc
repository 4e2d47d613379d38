#include "rpc/access_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/json.h"
#include "base/secret_file.h"
#include "base/status.h"

namespace trainctl::rpc {
namespace {

constexpr char kAccessSchema[] = "trainctl.access.v1";
constexpr int64_t kMaxBytes = 256 << 10;

}  // namespace

std::string FormatAccess(const LauncherAccess& access) {
  const Json json = {{"schema", kAccessSchema},
                     {"job", access.job},
                     {"endpoints", access.endpoints},
                     {"key", access.credential.key_pem},
                     {"certificate", access.credential.cert_pem},
                     {"ca", access.credential.ca_pem}};
  return FormatJson(json);
}

absl::StatusOr<LauncherAccess> ParseAccess(const std::string& text, const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(const Json json, ParseJson(text, path));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string schema, JsonString(json, "schema", path));
  if (schema != kAccessSchema) {
    return BadDataError(absl::StrCat(path, " is a ", schema, "; this trainctl reads ", kAccessSchema));
  }
  LauncherAccess access;
  TRAINCTL_ASSIGN_OR_RETURN(access.job, JsonString(json, "job", path));
  TRAINCTL_ASSIGN_OR_RETURN(access.credential.key_pem, JsonString(json, "key", path));
  TRAINCTL_ASSIGN_OR_RETURN(access.credential.cert_pem, JsonString(json, "certificate", path));
  TRAINCTL_ASSIGN_OR_RETURN(access.credential.ca_pem, JsonString(json, "ca", path));
  const auto endpoints = json.find("endpoints");
  if (endpoints != json.end() && endpoints->is_array()) {
    for (const Json& endpoint : *endpoints) {
      if (endpoint.is_string()) access.endpoints.push_back(endpoint.get<std::string>());
    }
  }
  if (access.endpoints.empty()) {
    return BadDataError(absl::StrCat(path, ": field 'endpoints' names no address of the launcher"));
  }
  return access;
}

std::string AccessPath(absl::string_view run_dir, Role role) {
  return absl::StrCat(run_dir, "/", RoleName(role), ".json");
}

absl::Status WriteAccessFile(absl::string_view run_dir, Role role, const LauncherAccess& access) {
  const std::string path = AccessPath(run_dir, role);
  return role == Role::kAdmin ? WriteSecretFile(path, FormatAccess(access))
                              : WriteFileAtomic(path, FormatAccess(access));
}

absl::StatusOr<LauncherAccess> ReadAccessFile(absl::string_view run_dir, Role role) {
  const std::string path = AccessPath(run_dir, role);
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return absl::NotFoundError(absl::StrCat("there is no ", path));
    return ErrnoError("read", path, errno);
  }
  if (role == Role::kAdmin && (info.st_mode & 077) != 0) {
    return EnvironmentError(
        absl::StrCat(path, " can be read by others, who could stop the run; run 'chmod 600 ", path, "'"));
  }
  if (::access(path.c_str(), R_OK) != 0 && errno == EACCES) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " cannot be read: only the user who launched the run may do this"));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxBytes));
  return ParseAccess(text, path);
}

void RemoveAccessFile(absl::string_view run_dir, Role role, absl::string_view job) {
  const absl::StatusOr<LauncherAccess> access = ReadAccessFile(run_dir, role);
  if (access.ok() && access->job == job) ::unlink(AccessPath(run_dir, role).c_str());
}

}  // namespace trainctl::rpc
