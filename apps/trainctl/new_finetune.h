// `trainctl new --from FOLDER`: a recipe for fine-tuning a Hugging Face model.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "apps/trainctl/command.h"
#include "base/output_file.h"

namespace trainctl::cli {

struct FineTuneOptions {
  std::string from;               // --from
  std::vector<std::string> data;  // --data
  std::string out;                // --out; "-" for stdout
  OutputRules output_rules;
};

// Reads the model's config.json and, if --data names files, counts their tokens. Writes a recipe that `recipe
// check` accepts, and prints whether it fits this machine. Returns the errors of `recipe check`: UsageError
// for a model or files that cannot be used, and BadDataError for damaged files.
absl::StatusOr<ExitCode> NewFineTune(FineTuneOptions options, const Output& output);

}  // namespace trainctl::cli
