// Runs the agent of one node of a job: starts and ends its workers as the coordinator says, until the job is
// over or the coordinator is lost. Then nothing of it is left.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rendezvous/agent_link.h"

namespace trainctl::launcher {

// How long an agent that was let in waits for the launcher to set it up.
inline constexpr absl::Duration kSetupTimeout = absl::Seconds(60);

struct AgentRunOptions {
  std::string worker_program;  // a path
  std::string node;
  std::function<rendezvous::NodeFacts(const rendezvous::NodeSetup& setup)> look;  // at this machine
  // Connects; the workers' socket goes to that path, and their tokens to files that begin with the other.
  // `is_cancelled`: a signal has come meanwhile.
  std::function<absl::StatusOr<std::unique_ptr<rendezvous::AgentLink>>(
      const std::string& socket_path, const std::string& token_path,
      const std::function<bool()>& is_cancelled)>
      connect;
};

// Blocks; call it from the main thread. SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 ask the job to save and stop.
// Returns when the job is over, and whether it is finished; Unavailable when the coordinator was lost;
// EnvironmentError when the node cannot take part; the coordinator gets the reason, too.
absl::StatusOr<bool> RunAgent(const AgentRunOptions& options);

}  // namespace trainctl::launcher
