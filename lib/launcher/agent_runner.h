// Runs the agent of one node of a job: starts and ends its workers as the coordinator says, until the job is
// over or the coordinator is lost. Then nothing of it is left.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rendezvous/agent_link.h"

namespace trainctl::launcher {

struct AgentRunOptions {
  std::string worker_program;  // a path
  std::string node;
  // Connects; the workers' socket and token go to these paths.
  std::function<absl::StatusOr<std::unique_ptr<rendezvous::AgentLink>>(const std::string& socket_path,
                                                                       const std::string& token_path)>
      connect;
};

// Blocks; call it from the main thread. SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 ask the job to save and stop. OK
// when the job is over; Unavailable when the coordinator was lost; EnvironmentError when the node cannot take
// part; the coordinator gets the reason, too.
absl::Status RunAgent(const AgentRunOptions& options);

}  // namespace trainctl::launcher
