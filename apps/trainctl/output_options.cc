#include "apps/trainctl/output_options.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::cli {

absl::Status CheckOutputs(const std::vector<OutputOption>& options, const OutputRules& rules) {
  std::vector<OutputOption> files;
  for (const OutputOption& option : options) {
    if (option.path->empty()) continue;
    const absl::StatusOr<OutputTarget> target = FindOutput(*option.path, rules);
    if (!target.ok()) return Annotate(target.status(), option.name);
    if (target->kind == OutputKind::kStream) continue;
    for (const OutputOption& other : files) {
      if (!IsSameFile(*other.path, *option.path)) continue;
      return UsageError(absl::StrCat(other.name, " and ", option.name, " are both ", *option.path,
                                     "; choose another file for one of them"));
    }
    files.push_back(option);
  }
  return absl::OkStatus();
}

void AddForceFlag(CLI::App& verb, bool& force) {
  verb.add_flag("--force", force, "Overwrite existing outputs, never inputs");
}

}  // namespace trainctl::cli
