// Everything an agent needs to connect to its launcher. The launcher writes an invitation for each agent that
// it starts. An agent that is started before the launcher builds its own invitation from the secret it was
// given (job_secret.h). Pure functions; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rpc/job_authority.h"

namespace trainctl::rpc {

struct Invitation {
  // The job's ID; empty if only the launcher knows it.
  std::string job;
  std::string node;
  // Path of the run folder on the launcher's machine; may be empty.
  std::string run_dir;
  // "host:port" each; any of them works. Host names are resolved again for each attempt.
  std::vector<std::string> endpoints;
  // Presented until the agent has its own certificate. Includes the authority to trust.
  Credential bootstrap;
  // Exactly one of these is set.
  std::string token;     // valid for this agent only
  std::string node_key;  // valid for all agents of the node
};

// Formats an invitation with a token as one line of JSON. The line is secret.
std::string FormatInvitation(const Invitation& invitation);
// Parses an invitation. Returns UsageError if `text` is not one.
absl::StatusOr<Invitation> ReadInvitation(const std::string& text);

}  // namespace trainctl::rpc
