// Internal to lib/rpc: the identity of a caller, which is proven by a certificate between machines (tls.h)
// and by a token on a Unix socket (token_guard.h). Plain data; thread-safe.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace trainctl::rpc {

enum class Role {
  kWorker,       // acts for one member; uses a token only, because it never calls another machine
  kBootstrap,    // may only request an agent's certificate; uses a certificate only
  kAgent,        // one per node; uses a certificate only
  kReader,       // may read the status
  kAdmin,        // may read the status, save and stop
  kCoordinator,  // the server; uses a certificate only
};

absl::string_view RoleName(Role role);

struct Identity {
  Role role = Role::kReader;
  std::string name;  // worker's member or agent's node
  friend bool operator==(const Identity&, const Identity&) = default;
};

// Whether the role may change the run as described by `changes`, for example "stop the run". If `changes` is
// null, whether the role may read the status.
bool MayAdminister(Role role, const char* changes);
// Describes why a role may not do `what`, for example "the role worker may not stop the run".
std::string WhyMayNot(Role role, const char* what);

}  // namespace trainctl::rpc
