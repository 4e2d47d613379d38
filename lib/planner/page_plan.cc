#include "planner/page_plan.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/units.h"

namespace trainctl::planner {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

ParetoPoint PointOf(const Choice& choice) {
  const std::string layout = DescribeLayout(choice.workload);
  return {absl::StrCat(choice.num_gpus(), " GPUs: ", layout), choice.memory.device_bytes / kGiB,
          choice.time.step_seconds, false, false};
}

void AddPoints(const ClusterPlan& plan, ParetoChart& chart) {
  chart.x_label = "memory of the fullest device, GiB";
  chart.y_label = "step, s";
  for (const Choice& choice : plan.pareto) {
    chart.points.push_back(PointOf(choice));
    chart.points.back().on_front = true;
  }
  for (const Choice& choice : plan.alternatives) chart.points.push_back(PointOf(choice));
  if (chart.points.empty()) return;
  chart.points.push_back(PointOf(plan.chosen));
  chart.points.back().chosen = true;
}

void AddFigures(const ClusterPlan& plan, std::vector<PageFact>& facts) {
  const Figures figures = FiguresOf(plan, plan.chosen);
  facts.push_back({"Use", absl::StrFormat("%.1f %% of the device's peak (MFU)", figures.mfu * 100)});
  std::string cost = absl::StrFormat("%.0f GPU hours per 1B tokens", figures.gpu_hours_per_billion_tokens);
  if (figures.dollars_per_billion_tokens > 0) {
    absl::StrAppendFormat(&cost, ", $%.0f", figures.dollars_per_billion_tokens);
  }
  facts.push_back({"Cost", cost});
  if (figures.run_seconds > 0) {
    std::string run =
        absl::StrFormat("%s tokens in %.1f days", FormatCount(plan.run_tokens), figures.run_seconds / 86400);
    if (figures.run_dollars > 0) absl::StrAppendFormat(&run, ", $%.0f", figures.run_dollars);
    facts.push_back({"Run", run});
  }
  if (plan.failures.has_value()) {
    facts.push_back(
        {"Failures", absl::StrFormat("%.1f %% of the time makes steps", figures.effective_share * 100)});
  }
}

}  // namespace

PageInput PageOfPlan(const ClusterPlan& plan, const std::vector<std::string>& notes) {
  PageInput page = PageOf(plan.chosen.workload, plan.model.name, plan.memory_limit_bytes);
  AddFigures(plan, page.facts);
  AddPoints(plan, page.pareto);
  page.notes.push_back(absl::StrFormat("%s layouts were looked at, %s of them priced.",
                                       FormatCount(plan.counts.enumerated),
                                       FormatCount(plan.counts.simulated)));
  page.notes.insert(page.notes.end(), plan.notes.begin(), plan.notes.end());
  page.notes.insert(page.notes.end(), notes.begin(), notes.end());
  return page;
}

}  // namespace trainctl::planner
