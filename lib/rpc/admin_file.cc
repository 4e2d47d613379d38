#include "rpc/admin_file.h"

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

constexpr char kSchema[] = "trainctl.admin.v1";
constexpr int64_t kMaxBytes = 256 << 10;

}  // namespace

std::string FormatAdminAccess(const AdminAccess& access) {
  const Json json = {{"schema", kSchema},
                     {"job", access.job},
                     {"endpoints", access.endpoints},
                     {"key", access.credential.key_pem},
                     {"certificate", access.credential.cert_pem},
                     {"ca", access.credential.ca_pem}};
  return json.dump();
}

absl::StatusOr<AdminAccess> ParseAdminAccess(const std::string& text, const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(const Json json, ParseJson(text, path));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string schema, JsonString(json, "schema", path));
  if (schema != kSchema) {
    return BadDataError(absl::StrCat(path, " is a ", schema, "; this trainctl reads ", kSchema));
  }
  AdminAccess access;
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

absl::Status WriteAdminFile(const std::string& path, const AdminAccess& access) {
  return WriteSecretFile(path, FormatAdminAccess(access));
}

absl::StatusOr<AdminAccess> ReadAdminFile(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return absl::NotFoundError(absl::StrCat("there is no ", path));
    return ErrnoError("read", path, errno);
  }
  if ((info.st_mode & 077) != 0) {
    return EnvironmentError(
        absl::StrCat(path, " can be read by others, who could stop the run; run 'chmod 600 ", path, "'"));
  }
  if (::access(path.c_str(), R_OK) != 0 && errno == EACCES) {
    return EnvironmentError(
        absl::StrCat(path, " cannot be read: only the user who launched the run may ask or stop it"));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxBytes));
  return ParseAdminAccess(text, path);
}

void RemoveAdminFile(const std::string& path, absl::string_view job) {
  const absl::StatusOr<AdminAccess> access = ReadAdminFile(path);
  if (access.ok() && access->job == job) ::unlink(path.c_str());
}

}  // namespace trainctl::rpc
