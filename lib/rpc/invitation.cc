#include "rpc/invitation.h"

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/status.h"

namespace trainctl::rpc {
namespace {

constexpr char kInvitationSchema[] = "trainctl.invitation.v2";

}  // namespace

std::string FormatInvitation(const Invitation& invitation) {
  const Json json = {{"schema", kInvitationSchema},
                     {"job", invitation.job},
                     {"node", invitation.node},
                     {"run_dir", invitation.run_dir},
                     {"endpoints", invitation.endpoints},
                     {"ca", invitation.bootstrap.ca_pem},
                     {"certificate", invitation.bootstrap.cert_pem},
                     {"key", invitation.bootstrap.key_pem},
                     {"token", invitation.token}};
  return FormatJson(json);
}

absl::StatusOr<Invitation> ReadInvitation(const std::string& text) {
  const std::string where = "the invitation";
  TRAINCTL_ASSIGN_OR_RETURN(const Json json, ParseJson(text, where));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string schema, JsonString(json, "schema", where));
  if (schema != kInvitationSchema) {
    return UsageError(absl::StrCat("the invitation is a ", schema, ", this agent reads ", kInvitationSchema));
  }
  Invitation invitation;
  TRAINCTL_ASSIGN_OR_RETURN(invitation.job, JsonString(json, "job", where));
  TRAINCTL_ASSIGN_OR_RETURN(invitation.node, JsonString(json, "node", where));
  TRAINCTL_ASSIGN_OR_RETURN(invitation.run_dir, JsonString(json, "run_dir", where));
  TRAINCTL_ASSIGN_OR_RETURN(invitation.bootstrap.ca_pem, JsonString(json, "ca", where));
  TRAINCTL_ASSIGN_OR_RETURN(invitation.bootstrap.cert_pem, JsonString(json, "certificate", where));
  TRAINCTL_ASSIGN_OR_RETURN(invitation.bootstrap.key_pem, JsonString(json, "key", where));
  TRAINCTL_ASSIGN_OR_RETURN(invitation.token, JsonString(json, "token", where));
  const auto endpoints = json.find("endpoints");
  if (endpoints == json.end() || !endpoints->is_array() || endpoints->empty()) {
    return UsageError("the invitation names no address of the launcher");
  }
  for (const Json& endpoint : *endpoints) {
    if (!endpoint.is_string()) return UsageError("the invitation names no address of the launcher");
    invitation.endpoints.push_back(endpoint.get<std::string>());
  }
  return invitation;
}

}  // namespace trainctl::rpc
