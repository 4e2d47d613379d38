// What a worker finds in its environment. Thread safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace trainctl::launcher {

// This process's environment, overridden by `env`, without the names that are set per worker.
std::vector<std::string> WorkerEnvironment(const std::map<std::string, std::string>& env);

// UsageError when launch.env names a variable that the launcher sets itself, or none at all.
absl::Status CheckWorkerEnv(const std::map<std::string, std::string>& env);

}  // namespace trainctl::launcher
