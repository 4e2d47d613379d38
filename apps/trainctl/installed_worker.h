// Finds the trainctl-worker that pip installed into a Python environment. apps/bundle/wheels.py defines the
// layout.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace trainctl::cli {

// The worker in the environment that has this program at `program` (ENVIRONMENT/bin/trainctl). If PyTorch is
// not in the same folder of packages but the environment's Python finds it, for example in a venv that sees
// the system's packages, its libraries are put first into this process's LD_LIBRARY_PATH, which workers
// inherit, so call it before starting threads. EnvironmentError, with a command that helps, if pip installed
// no worker there, one of another version, or one without PyTorch. NotFound if pip did not install
// `program`.
absl::StatusOr<std::string> FindInstalledWorker(const std::string& program);

}  // namespace trainctl::cli
