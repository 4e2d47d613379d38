// An agent's side of the rendezvous: one stream to the coordinator over TCP with mutual TLS, and a Unix
// socket for the node's workers, whose sessions and store calls are handed on over it. Thread safe.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rendezvous/agent_link.h"
#include "rpc/invitation.h"

namespace trainctl::rpc {

struct AgentClientOptions {
  Invitation invitation;
  std::string socket_path;  // for the workers, at most 107 bytes; in a folder that others cannot enter
  std::string token_path;   // what the workers' token files begin with
  absl::Duration timeout = absl::Seconds(30);  // to reach the coordinator
  // Whether nobody wants it any more, asked every few seconds meanwhile. May be empty.
  std::function<bool()> is_cancelled;
};

// Blocks until the coordinator has taken this agent in. Unavailable: none of the addresses answers;
// PermissionDenied: the token was used by another, or the node's key is not this job's; Cancelled.
absl::StatusOr<std::unique_ptr<rendezvous::AgentLink>> ConnectAgent(const AgentClientOptions& options);

}  // namespace trainctl::rpc
