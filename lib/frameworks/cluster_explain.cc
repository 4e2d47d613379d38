#include "frameworks/cluster_explain.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/units.h"
#include "frameworks/cluster_space.h"
#include "frameworks/neighbours.h"
#include "frameworks/page_input.h"
#include "frameworks/published_errors.h"

namespace trainctl::frameworks {
namespace {

constexpr double kUnlimitedBytes = 1e18;
// Of the step: less is not what binds.
constexpr double kWorthSaying = 0.005;

std::string Bytes(double bytes) { return FormatBytes(static_cast<int64_t>(bytes)); }

// "4.31 s (-12.3 %)" against the chosen step.
std::string Against(const ClusterPlan& plan, const Choice& choice) {
  const double chosen = plan.chosen.time.step_seconds;
  return absl::StrFormat("%.4g s a step (%+.1f %%)", choice.time.step_seconds,
                         (choice.time.step_seconds / chosen - 1) * 100);
}

std::optional<Choice> BestIn(const SearchSpace& space, const Goal& goal) {
  absl::StatusOr<SearchResult> found = Explore(space, goal, {.keep = 1});
  if (!found.ok() || found->best.empty()) return std::nullopt;
  return std::move(found->best[0]);
}

// With everything but `keep` free.
SearchSpace Freed(const SearchSpace& space) {
  SearchSpace freed;
  freed.base = space.base;
  freed.num_gpus = space.num_gpus;
  freed.gpu_counts = space.gpu_counts;
  freed.memory_limit_bytes = space.memory_limit_bytes;
  freed.precision = space.precision;
  freed.sequence_parallel = space.sequence_parallel;
  LimitToFramework(freed);
  return freed;
}

bool IsFaster(const ClusterPlan& plan, const Choice& choice) {
  return choice.time.step_seconds < plan.chosen.time.step_seconds * (1 - kWorthSaying);
}

std::vector<std::string> BindingsOf(const ClusterPlan& plan) {
  std::vector<std::string> bindings;
  const Goal fastest = {.deadline_seconds = plan.goal.deadline_seconds,
                        .tokens = plan.goal.tokens,
                        .failures = plan.goal.failures};
  if (plan.goal.objective != Objective::kStepTime) {
    const std::optional<Choice> choice = BestIn(plan.space, fastest);
    if (choice.has_value() && IsFaster(plan, *choice)) {
      bindings.push_back(absl::StrCat("the objective: the fastest, ", DescribeLayout(choice->workload),
                                      ", would take ", Against(plan, *choice), " on ", choice->num_gpus(),
                                      " devices"));
    }
    return bindings;
  }
  SearchSpace unlimited = plan.space;
  unlimited.memory_limit_bytes = kUnlimitedBytes;
  if (const std::optional<Choice> choice = BestIn(unlimited, fastest);
      choice.has_value() && IsFaster(plan, *choice)) {
    bindings.push_back(absl::StrCat(
        "memory: ", DescribeLayout(choice->workload), " would take ", Against(plan, *choice),
        " but needs up to ", Bytes(choice->memory.upper_bytes), " of ", Bytes(plan.memory_limit_bytes)));
  }
  if (const std::optional<Choice> choice = BestIn(Freed(plan.space), fastest);
      choice.has_value() && IsFaster(plan, *choice)) {
    bindings.push_back(
        absl::StrCat("the recipe's own settings: with all of [parallel] and the micro-batch at "
                     "\"auto\", ",
                     DescribeLayout(choice->workload), " would take ", Against(plan, *choice)));
  }
  const TimePrice& time = plan.chosen.time;
  const auto largest = *std::max_element(
      TimeTerms().begin(), TimeTerms().end(),
      [&](const TimeTerm& a, const TimeTerm& b) { return time.*a.second < time.*b.second; });
  bindings.push_back(absl::StrFormat("%s: %.1f %% of the step, its largest term", largest.first,
                                     time.*largest.second / time.step_seconds * 100));
  return bindings;
}

std::string DescribeErrors(const char* what, int rows, double percent, double median_percent,
                           const char* framework) {
  if (rows == 0) return absl::StrCat(what, ": no published run of ", framework, " was compared");
  return absl::StrFormat(
      "%s: off by %.1f %% in the mean over %d published runs of %s, in the middle %.1f %% too %s", what,
      percent, rows, framework, std::abs(median_percent), median_percent < 0 ? "low" : "high");
}

std::vector<std::string> TrustIn(const ClusterPlan& plan) {
  const MemoryPrice& memory = plan.chosen.memory;
  const FrameworkProfile& framework = *plan.chosen.workload.framework;
  std::vector<std::string> trust;
  trust.push_back(absl::StrCat("memory: ", Bytes(memory.device_bytes), " is expected and ",
                               Bytes(memory.upper_bytes), " is the bound that has to fit"));
  if (const PublishedError* error = FindPublishedError(framework.name)) {
    trust.push_back(DescribeErrors("memory", error->memory_rows, error->memory_percent,
                                   error->memory_median_percent, framework.name));
    trust.push_back(DescribeErrors("time", error->time_rows, error->time_percent, error->time_median_percent,
                                   framework.name));
  } else {
    trust.push_back(absl::StrCat("no run of ", framework.name,
                                 " on accelerators was measured: how far off this is "
                                 "nobody knows yet"));
  }
  trust.push_back(absl::StrCat("framework: ", framework.source));
  trust.push_back(
      "docs/reference/benchmarks.md has the errors against published runs, by source; `trainctl score` of "
      "your "
      "own runs tells them for your machine");
  return trust;
}

std::string Percent(double share) { return absl::StrFormat("%.1f %%", share * 100); }

}  // namespace

Explanation Explain(const ClusterPlan& plan) {
  return {BindingsOf(plan), NeighboursOf(plan.chosen.workload, plan.memory_limit_bytes),
          ConstantsOf(plan.chosen.workload), TrustIn(plan)};
}

report::PageInput PageOfPlan(const ClusterPlan& plan) {
  report::PageInput page = PageOf(plan.chosen.workload, plan.model.name, plan.memory_limit_bytes);
  const Figures figures = FiguresOf(plan, plan.chosen);
  page.facts.push_back({"MFU", Percent(figures.mfu)});
  if (plan.goal.price_per_gpu_hour > 0) {
    page.facts.push_back({"cost of 1B tokens", absl::StrFormat("$%.0f", figures.dollars_per_billion_tokens)});
  }
  page.pareto.x_label = "bound of memory, GiB";
  page.pareto.y_label = "step, s";
  const auto point = [&](const Choice& choice, bool on_front, bool chosen) {
    page.pareto.points.push_back({DescribeLayout(choice.workload), choice.memory.upper_bytes / (1 << 30),
                                  choice.time.step_seconds, on_front, chosen});
  };
  for (const Choice& choice : plan.pareto) point(choice, true, false);
  for (const Choice& choice : plan.alternatives) point(choice, false, false);
  point(plan.chosen, true, true);
  page.notes.insert(page.notes.end(), plan.notes.begin(), plan.notes.end());
  return page;
}

}  // namespace trainctl::frameworks
