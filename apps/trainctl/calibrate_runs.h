// `trainctl calibrate FILE.csv`: the few constants of a machine, fitted to runs that were measured on it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "apps/trainctl/command.h"
#include "base/output_file.h"

namespace trainctl::cli {

// Prints the constants with the errors before and after, and writes the hardware profile to `out` unless
// that is empty.
absl::StatusOr<ExitCode> CalibrateToRuns(const std::string& file, const std::string& out, OutputRules rules,
                                         const Output& output);

}  // namespace trainctl::cli
