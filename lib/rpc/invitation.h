// What an agent needs to come to its launcher. The launcher writes one for each agent that it starts; an
// agent that is there before the launcher makes its own of what it was given (job_secret.h). Pure; thread
// safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rpc/job_authority.h"

namespace trainctl::rpc {

struct Invitation {
  std::string job;  // its id; empty: the launcher says it
  std::string node;
  std::vector<std::string> endpoints;  // "host:port"; any of them. Names are looked up at each try
  Credential bootstrap;                // shown until the agent has its own; includes the trusted authority
  // One of them.
  std::string token;     // good for this agent
  std::string node_key;  // good for all agents of the node
};

// One line of JSON, of an invitation with a token; a secret.
std::string FormatInvitation(const Invitation& invitation);
// UsageError for anything else.
absl::StatusOr<Invitation> ReadInvitation(const std::string& text);

}  // namespace trainctl::rpc
