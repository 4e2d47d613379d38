// Builds and checks the environment of workers. Thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace trainctl::launcher {

// Returns this process's environment, overridden by `env` and without the variables that are set for each
// worker.
std::vector<std::string> WorkerEnvironment(const std::map<std::string, std::string>& env);

// Returns UsageError if `env` (launch.env) contains an invalid name or a variable that the launcher sets
// itself.
absl::Status CheckWorkerEnv(const std::map<std::string, std::string>& env);

}  // namespace trainctl::launcher
