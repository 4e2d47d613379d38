#include "apps/trainctl/run_activity.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace trainctl::cli {
namespace {

constexpr std::pair<absl::string_view, absl::string_view> kWords[] = {
    {"", "waiting for all workers"},
    {"connect", "connecting the workers"},
    {"open data", "opening the data"},
    {"restore", "loading or initializing the weights"},
    {"evaluate", "evaluating before the first step"},
};

}  // namespace

std::string ActivityBeforeFirstStep(int64_t step, absl::string_view phase) {
  if (step >= 0) return absl::StrCat("first step (", step, ")");
  for (const auto& [name, words] : kWords) {
    if (name == phase) phase = words;
  }
  return absl::StrCat("starting: ", phase);
}

}  // namespace trainctl::cli
