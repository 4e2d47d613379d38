// Options that name a file to write, and --force.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/output_file.h"

namespace CLI {
class App;
}

namespace trainctl::cli {

struct OutputOption {
  const char* name;  // "--html"
  const std::string* path;
};

// Each that is given as FindOutput has it, and no two the same file. UsageError names the option.
absl::Status CheckOutputs(const std::vector<OutputOption>& options, const OutputRules& rules);

void AddForceFlag(CLI::App& verb, bool& force);

}  // namespace trainctl::cli
