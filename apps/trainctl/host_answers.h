// Asks the machines of launch.backend = "ssh" whether they can take part, before a launch depends on it.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "launcher/job.h"

namespace trainctl::cli {

// EnvironmentError for each machine that ssh does not reach, that cannot run launch.ssh.program, or whose
// version of it differs. Asks all machines at once, and returns after `patience` at the latest. Empty if ssh
// does not start the agents.
std::vector<absl::Status> AskHosts(const launcher::RemoteNodes& remote,
                                   absl::Duration patience = absl::Seconds(30));

}  // namespace trainctl::cli
