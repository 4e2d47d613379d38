#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/network.h"
#include "recipe/check_subjects.h"
#include "recipe/schema.h"
#include "recipe/values.h"

namespace trainctl::recipe {
namespace {

// Steps are counted as in metrics.jsonl, from 1.
void CheckNamedSteps(CheckContext& context, absl::string_view path, const std::vector<int64_t>& steps) {
  if (!context.IsUsable({path, "train.steps"})) return;
  const int64_t num_steps = context.recipe().train.steps;
  std::set<int64_t> seen;
  for (const int64_t step : steps) {
    if (!seen.insert(step).second)
      context.Fail({path}, absl::StrCat(path, ": step ", step, " is listed twice"));
    if (step <= num_steps) continue;
    context.Fail({path}, absl::StrCat(path, ": step ", step, " is beyond train.steps (", num_steps, ")"));
  }
}

}  // namespace

void CheckTracedSteps(CheckContext& context) {
  const MetricsConfig& metrics = context.recipe().metrics;
  CheckNamedSteps(context, "metrics.trace_steps", metrics.trace_steps);
  CheckNamedSteps(context, "metrics.profile_steps", metrics.profile_steps);
}

void CheckPrometheus(CheckContext& context) {
  const std::string& where = context.recipe().metrics.prometheus;
  if (where.empty() || absl::EndsWith(where, kPrometheusFileSuffix)) return;
  const bool is_url = absl::StrContains(where, "://");
  const absl::Status status = ParseEndpoint(where, /*least_port=*/0).status();
  if (status.ok()) return;
  context.Fail(
      {"metrics.prometheus"},
      absl::StrCat("metrics.prometheus: ",
                   is_url ? absl::StrCat(QuoteToml(where), " is a URL") : std::string(status.message()),
                   "; set HOST:PORT, such as \"127.0.0.1:9400\", or the path of a *.prom file"));
}

}  // namespace trainctl::recipe
