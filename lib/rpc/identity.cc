#include "rpc/identity.h"

#include "absl/strings/str_cat.h"

namespace trainctl::rpc {

absl::string_view RoleName(Role role) {
  switch (role) {
    case Role::kWorker:
      return "worker";
    case Role::kBootstrap:
      return "bootstrap";
    case Role::kAgent:
      return "agent";
    case Role::kReader:
      return "reader";
    case Role::kAdmin:
      return "admin";
    case Role::kCoordinator:
      return "coordinator";
  }
  return "";
}

bool MayAdminister(Role role, const char* changes) {
  return role == Role::kAdmin || (role == Role::kReader && changes == nullptr);
}

std::string WhyMayNot(Role role, const char* what) {
  return absl::StrCat("the role ", RoleName(role), " may not ", what);
}

}  // namespace trainctl::rpc
