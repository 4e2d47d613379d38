// Internal to lib/rpc: who calls. Between machines a certificate says it (tls.h), on a Unix socket a token
// (token_guard.h). Plain; thread safe.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace trainctl::rpc {

enum class Role {
  kWorker,       // speaks for one member, by token only: it reaches no other machine
  kBootstrap,    // may ask for an agent's certificate and nothing else, by certificate only
  kAgent,        // one per node, by certificate only
  kReader,       // may look
  kAdmin,        // may look, save and stop
  kCoordinator,  // the server, by certificate only
};

absl::string_view RoleName(Role role);

struct Identity {
  Role role = Role::kReader;
  std::string name;  // of a worker: its member; of an agent: its node
  friend bool operator==(const Identity&, const Identity&) = default;
};

// Whether this role may ask for the status (`changes` null) or change the run ("stop the run").
bool MayAdminister(Role role, const char* changes);
// Why it may not: "the role worker may not stop the run".
std::string WhyMayNot(Role role, const char* what);

}  // namespace trainctl::rpc
