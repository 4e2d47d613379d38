// The verb check-collectives of trainctl-worker: starts a process for each rank and waits for them.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace trainctl {

// `options` are the verb's, "--name" to value; a rank's process has --rank. `plugin` is used with --device
// cuda. UsageError for a number that is none. Blocks; every process that it started has ended when it
// returns. The exit code of the check, or of the rank that failed first.
absl::StatusOr<int> CheckCollectivesOfRanks(const std::map<std::string, std::string>& options,
                                            const std::string& plugin);

}  // namespace trainctl
