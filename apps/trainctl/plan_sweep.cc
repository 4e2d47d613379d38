// `trainctl plan --sweep`: a plan for each combination of values, for scaling curves.

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/trainctl/machine_access.h"
#include "apps/trainctl/plan_cluster.h"
#include "apps/trainctl/text_table.h"
#include "planner/cluster_plan.h"
#include "planner/cluster_plan_json.h"

namespace trainctl::cli {
namespace {

constexpr size_t kMostPlans = 10000;

struct Axis {
  std::string key;
  std::vector<std::string> values;
};

// "model.layers=8,16"; commas within brackets and quotes belong to the value.
absl::StatusOr<Axis> ParseAxis(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    return UsageError(
        absl::StrCat("--sweep ", text, ": expected KEY=V1,V2,..., such as cluster.nodes=1,2,4"));
  }
  Axis axis{text.substr(0, equals), {""}};
  int depth = 0;
  bool is_quoted = false;
  for (const char c : text.substr(equals + 1)) {
    if (c == '"') is_quoted = !is_quoted;
    if (!is_quoted && (c == '[' || c == '{')) ++depth;
    if (!is_quoted && (c == ']' || c == '}')) --depth;
    if (c == ',' && depth == 0 && !is_quoted) {
      axis.values.emplace_back();
    } else {
      axis.values.back() += c;
    }
  }
  for (const std::string& value : axis.values) {
    if (value.empty()) return UsageError(absl::StrCat("--sweep ", text, ": a value is empty"));
  }
  return axis;
}

absl::StatusOr<std::vector<Axis>> ParseAxes(const std::vector<std::string>& texts) {
  std::vector<Axis> axes;
  size_t num_plans = 1;
  for (const std::string& text : texts) {
    TRAINCTL_ASSIGN_OR_RETURN(Axis axis, ParseAxis(text));
    num_plans *= axis.values.size();
    if (num_plans > kMostPlans) {
      return UsageError(absl::StrCat("--sweep: more than ", kMostPlans, " combinations"));
    }
    axes.push_back(std::move(axis));
  }
  return axes;
}

struct Point {
  std::vector<std::string> values;  // one for each axis
  absl::Status status;
  std::optional<planner::ClusterPlan> plan;
};

absl::StatusOr<planner::ClusterPlan> PlanAt(const PlanOptions& options,
                                            const planner::ClusterPlanOptions& search,
                                            const std::vector<Axis>& axes,
                                            const std::vector<std::string>& values) {
  std::vector<std::string> sets = options.sets;
  for (size_t i = 0; i < axes.size(); ++i) sets.push_back(absl::StrCat(axes[i].key, "=", values[i]));
  std::vector<std::string> ignored;
  TRAINCTL_ASSIGN_OR_RETURN(
      const recipe::LoadedRecipe loaded,
      recipe::LoadRecipe(options.recipe, sets, PlanAccess(&ignored), recipe::Purpose::kPlan));
  if (loaded.purpose != recipe::Purpose::kPlan) {
    return UsageError("--sweep is for accelerators and cluster.device is \"cpu\"");
  }
  return planner::MakeClusterPlan(loaded, search);
}

// Last axis fastest.
std::vector<Point> PointsOf(const std::vector<Axis>& axes) {
  std::vector<Point> points(1);
  for (const Axis& axis : axes) {
    std::vector<Point> longer;
    for (const Point& point : points) {
      for (const std::string& value : axis.values) {
        longer.push_back(point);
        longer.back().values.push_back(value);
      }
    }
    points = std::move(longer);
  }
  return points;
}

void PrintPoints(const std::vector<Axis>& axes, const std::vector<Point>& points, bool color) {
  std::vector<std::string> header;
  for (const Axis& axis : axes) header.push_back(axis.key);
  const bool has_price = points[0].plan.has_value() && points[0].plan->goal.price_per_gpu_hour > 0;
  header.insert(header.end(), {"GPUs", "step", "tok/s/GPU", "tokens/s", "MFU",
                               has_price ? "$/1B tokens" : "GPU-h/1B tokens", "GiB bound", "layout"});
  TextTable table(header, {header.size() - 1});
  for (const Point& point : points) {
    std::vector<std::string> row = point.values;
    if (point.plan.has_value()) {
      const planner::Choice& chosen = point.plan->chosen;
      const planner::Figures figures = planner::FiguresOf(*point.plan, chosen);
      const double tokens = figures.tokens_per_second_per_gpu * static_cast<double>(chosen.num_gpus());
      const double cost =
          has_price ? figures.dollars_per_billion_tokens : figures.gpu_hours_per_billion_tokens;
      row.insert(row.end(),
                 {absl::StrCat(chosen.num_gpus()), absl::StrFormat("%.4g s", chosen.time.step_seconds),
                  absl::StrFormat("%.0f", figures.tokens_per_second_per_gpu), absl::StrFormat("%.0f", tokens),
                  absl::StrFormat("%.1f%%", figures.mfu * 100), absl::StrFormat("%.0f", cost),
                  absl::StrFormat("%.1f", chosen.memory.upper_bytes / (1 << 30)),
                  planner::DescribeLayout(chosen.workload)});
    } else {
      row.resize(header.size() - 1, "-");
      row.emplace_back(point.status.message());
    }
    table.Add(std::move(row));
  }
  table.Print(color);
}

Json PointsToJson(const std::vector<Axis>& axes, const std::vector<Point>& points) {
  Json json = {{"schema", "trainctl.plan-sweep.v1"}, {"keys", Json::array()}, {"points", Json::array()}};
  for (const Axis& axis : axes) json["keys"].push_back(axis.key);
  for (const Point& point : points) {
    Json entry = {{"values", Json::object()}};
    for (size_t i = 0; i < axes.size(); ++i) entry["values"][axes[i].key] = point.values[i];
    if (point.plan.has_value()) {
      entry["chosen"] = planner::ChoiceToJson(*point.plan, point.plan->chosen);
    } else {
      entry["error"] = std::string(point.status.message());
      entry["exit_code"] = static_cast<int>(ExitCodeFor(point.status));
    }
    json["points"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace

absl::StatusOr<ExitCode> SweepPlans(const PlanOptions& options, const Output& output) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<Axis> axes, ParseAxes(options.sweeps));
  TRAINCTL_ASSIGN_OR_RETURN(const planner::ClusterPlanOptions search, SearchOptionsOf(options, 1));
  std::vector<Point> points = PointsOf(axes);
  bool has_plan = false;
  for (Point& point : points) {
    absl::StatusOr<planner::ClusterPlan> plan = PlanAt(options, search, axes, point.values);
    point.status = plan.status();
    if (!plan.ok()) continue;
    has_plan = true;
    point.plan = *std::move(plan);
  }
  // One mistake that all share is the error; else the rows say what could not be.
  if (!has_plan) return points[0].status;
  if (output.json) {
    std::puts(PointsToJson(axes, points).dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  } else {
    PrintPoints(axes, points, output.stdout_color);
  }
  return ExitCode::kOk;
}

}  // namespace trainctl::cli
