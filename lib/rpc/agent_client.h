// An agent's side of the rendezvous. It opens one stream to the coordinator over TCP with mutual TLS and a
// Unix socket for the node's workers, and forwards the workers' sessions and store calls over the stream.
// Thread-safe.
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
  // Path of the Unix socket for the workers, at most 107 bytes, in a folder that other users cannot enter.
  std::string socket_path;
  // Prefix of the paths of the workers' token files.
  std::string token_path;
  // How long to try to reach the coordinator.
  absl::Duration timeout = absl::Seconds(30);
  // Polled every few seconds while connecting; gives up if it returns true. May be null.
  std::function<bool()> is_cancelled;
};

// Connects to the coordinator and blocks until it has admitted this agent. Returns Unavailable if no address
// answers, PermissionDenied if another agent has used the token or if the node's key does not belong to this
// job, and Cancelled if is_cancelled returned true.
absl::StatusOr<std::unique_ptr<rendezvous::AgentLink>> ConnectAgent(const AgentClientOptions& options);

}  // namespace trainctl::rpc
