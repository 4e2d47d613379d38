// Runs the agent of one node of a job. The agent starts and stops workers as directed by the coordinator,
// until the job is over or the coordinator is lost, and leaves no processes behind.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rendezvous/agent_link.h"

namespace trainctl::launcher {

// How long an admitted agent waits for the launcher to send its setup.
inline constexpr absl::Duration kSetupTimeout = absl::Seconds(60);

struct AgentRunOptions {
  std::string worker_program;  // path of the program
  std::string node;
  // Parent folder for the workers' socket folder if neither TMPDIR nor /tmp can be used. May be empty.
  std::string run_dir;
  // Describes this machine.
  std::function<rendezvous::NodeFacts(const rendezvous::NodeSetup& setup)> look;
  // Connects to the coordinator. Creates the workers' socket at `socket_path` and writes their tokens to
  // files whose names begin with `token_path`. Gives up once `is_cancelled` returns true, which means that a
  // stop signal has arrived.
  std::function<absl::StatusOr<std::unique_ptr<rendezvous::AgentLink>>(
      const std::string& socket_path, const std::string& token_path,
      const std::function<bool()>& is_cancelled)>
      connect;
};

// Runs the agent, blocking until the job is over. Returns whether the job finished. Must be called from the
// main thread. SIGTERM, SIGINT, SIGUSR1, and SIGUSR2 ask the job to save and stop. Returns Unavailable if the
// coordinator is lost, or EnvironmentError if this node cannot take part; the coordinator is also sent the
// reason.
absl::StatusOr<bool> RunAgent(const AgentRunOptions& options);

}  // namespace trainctl::launcher
