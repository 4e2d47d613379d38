#include "apps/trainctl/plan_sweep.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "apps/trainctl/host_of_run.h"
#include "apps/trainctl/machine_access.h"
#include "apps/trainctl/plan_what_if.h"
#include "apps/trainctl/text_table.h"
#include "base/clock.h"
#include "base/json.h"
#include "frameworks/cluster_plan.h"
#include "frameworks/cluster_plan_json.h"
#include "planner/make_plan.h"
#include "planner/run_estimate.h"

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
    if (value.empty()) return UsageError(absl::StrCat("--sweep ", text, ": empty value"));
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

// The figures of a plan that a curve shows, whoever's run it is.
struct Figures {
  int64_t workers = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;  // of all workers
  double mfu = 0;                // 0: the peak is not known
  double cost = 0;               // per 1 B tokens: dollars or GPU-hours
  double memory_bytes = 0;       // of one worker; of a what-if the bound to plan with
  std::string layout;
  bool has_price = false;
  Json chosen;  // as --json of the plan has it
};

struct Point {
  std::vector<std::string> values;  // one for each axis
  absl::Status status;
  std::optional<Figures> figures;
};

Figures FiguresOf(const frameworks::ClusterPlan& plan) {
  const frameworks::Choice& chosen = plan.chosen;
  const frameworks::Figures figures = frameworks::FiguresOf(plan, chosen);
  const bool has_price = plan.goal.price_per_gpu_hour > 0;
  return {.workers = chosen.num_gpus(),
          .step_seconds = chosen.time.step_seconds,
          .tokens_per_second = figures.tokens_per_second_per_gpu * static_cast<double>(chosen.num_gpus()),
          .mfu = figures.mfu,
          .cost = has_price ? figures.dollars_per_billion_tokens : figures.gpu_hours_per_billion_tokens,
          .memory_bytes = chosen.memory.upper_bytes,
          .layout = frameworks::DescribeLayout(chosen.workload),
          .has_price = has_price,
          .chosen = frameworks::ChoiceToJson(plan, chosen)};
}

Figures FiguresOf(const plan::Plan& plan, const recipe::Recipe& recipe) {
  const planner::RunEstimate estimate = planner::EstimateRun(plan, plan::Chosen(plan), recipe);
  const bool has_price = estimate.dollars_per_billion_tokens > 0;
  const Json json = plan::PlanToJsonObject(plan);
  return {.workers = plan.layout.mesh.world_size(),
          .step_seconds = estimate.step_seconds,
          .tokens_per_second = estimate.tokens_per_second,
          .mfu = estimate.mfu,
          .cost = has_price ? estimate.dollars_per_billion_tokens : estimate.worker_hours_per_billion_tokens,
          .memory_bytes = static_cast<double>(plan.predicted.peak_bytes),
          .layout = plan.layout.ToString(),
          .has_price = has_price,
          .chosen = {{"layout", json["layout"]},
                     {"step_hash", plan.step_hash},
                     {"estimated_step_seconds", estimate.step_seconds},
                     {"peak_bytes", plan.predicted.peak_bytes}}};
}

absl::StatusOr<Figures> PlanAt(const PlanOptions& options, const frameworks::ClusterPlanOptions& search,
                               const std::vector<Axis>& axes, const std::vector<std::string>& values) {
  std::vector<std::string> sets = options.sets;
  for (size_t i = 0; i < axes.size(); ++i) sets.push_back(absl::StrCat(axes[i].key, "=", values[i]));
  std::vector<std::string> ignored;
  recipe::Access access = PlanAccess(&ignored);
  access.count_epoch_tokens = nullptr;  // the rows do not show how long the run takes
  TRAINCTL_ASSIGN_OR_RETURN(const recipe::LoadedRecipe loaded,
                            recipe::LoadRecipe(options.recipe, sets, access, recipe::Purpose::kWhatIf));
  if (loaded.purpose == recipe::Purpose::kWhatIf) {
    TRAINCTL_ASSIGN_OR_RETURN(const frameworks::ClusterPlan plan,
                              frameworks::MakeClusterPlan(loaded, search));
    return FiguresOf(plan);
  }
  TRAINCTL_ASSIGN_OR_RETURN(const cluster::Host host, HostOfRun(loaded.recipe));
  TRAINCTL_ASSIGN_OR_RETURN(const plan::Plan plan, planner::MakePlanFor(loaded.recipe, host));
  return FiguresOf(plan, loaded.recipe);
}

// A recipe takes the values of a sweep as it takes those of --set, and says so in its messages.
absl::Status InWordsOfSweep(const absl::Status& status, const std::vector<Axis>& axes) {
  std::string message(status.message());
  for (const Axis& axis : axes) {
    for (const char* between : {" ", ": "}) {
      absl::StrReplaceAll(
          {{absl::StrCat("--set", between, axis.key), absl::StrCat("--sweep", between, axis.key)}}, &message);
    }
  }
  return absl::Status(status.code(), message);
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

// The table, row by row. What has no plan before the first that has one waits for it: where none has, the
// table is an error.
class PointPrinter {
 public:
  PointPrinter(const std::vector<Axis>& axes, bool color) : axes_(axes), color_(color) {}

  void Add(const Point& point) {
    if (!rows_.has_value()) {
      waiting_.push_back(&point);
      if (!point.figures.has_value()) return;
      Begin(point.figures->has_price);
      for (const Point* early : waiting_) rows_->Print(RowOf(*early));
      return;
    }
    rows_->Print(RowOf(point));
  }

 private:
  void Begin(bool has_price) {
    has_price_ = has_price;
    std::vector<std::string> header;
    std::vector<size_t> widths;
    for (const Axis& axis : axes_) {
      header.push_back(axis.key);
      size_t longest = 0;
      for (const std::string& value : axis.values) longest = std::max(longest, value.size());
      widths.push_back(longest);
    }
    header.insert(header.end(), {"workers", "step", "tok/s each", "tokens/s", "MFU",
                                 has_price ? "$/1B tokens" : "worker-h/1B tokens", "GiB", "layout"});
    widths.insert(widths.end(), {0, 9, 0, 9, 5, 0, 6, 0});
    rows_.emplace(header, std::vector<size_t>{header.size() - 1}, widths, color_);
  }

  std::vector<std::string> RowOf(const Point& point) const {
    std::vector<std::string> row = point.values;
    if (!point.figures.has_value()) {
      row.resize(axes_.size() + 7, "-");
      row.emplace_back(point.status.message());
      return row;
    }
    const Figures& f = *point.figures;
    // A sweep over prices has rows of both kinds.
    const bool is_other = f.has_price != has_price_;
    const char* const before = is_other && f.has_price ? "$" : "";
    const char* const after = is_other && !f.has_price ? " h" : "";
    row.insert(row.end(), {absl::StrCat(f.workers), absl::StrFormat("%.4g s", f.step_seconds),
                           absl::StrFormat("%.0f", f.tokens_per_second / static_cast<double>(f.workers)),
                           absl::StrFormat("%.0f", f.tokens_per_second),
                           f.mfu > 0 ? absl::StrFormat("%.1f%%", f.mfu * 100) : "-",
                           absl::StrFormat("%s%.0f%s", before, f.cost, after),
                           absl::StrFormat("%.1f", f.memory_bytes / (1 << 30)), f.layout});
    return row;
  }

  const std::vector<Axis>& axes_;
  const bool color_;
  bool has_price_ = false;
  std::optional<RowStream> rows_;
  std::vector<const Point*> waiting_;
};

// How far a sweep is, on stderr: a line that is redrawn on a terminal, else one now and then.
class SweepProgress {
 public:
  SweepProgress(size_t num_plans, bool terminal) : num_plans_(num_plans), terminal_(terminal) {}
  ~SweepProgress() { Clear(); }
  SweepProgress(const SweepProgress&) = delete;
  SweepProgress& operator=(const SweepProgress&) = delete;

  void Begin(size_t plan) {
    constexpr absl::Duration kNowAndThen = absl::Seconds(10);
    const absl::Duration now = clock_.Monotonic();
    if (terminal_) {
      std::fprintf(stderr, "\r\x1b[Kplan %d of %d", static_cast<int>(plan) + 1, static_cast<int>(num_plans_));
      std::fflush(stderr);
      is_drawn_ = true;
    } else if (now - told_ >= kNowAndThen) {
      std::fprintf(stderr, "trainctl: computed %d of %d plans\n", static_cast<int>(plan),
                   static_cast<int>(num_plans_));
      told_ = now;
    }
  }

  // Before a row is printed.
  void Clear() {
    if (is_drawn_) std::fputs("\r\x1b[K", stderr);
    is_drawn_ = false;
  }

 private:
  const size_t num_plans_;
  const bool terminal_;
  RealClock clock_;
  absl::Duration told_ = clock_.Monotonic();
  bool is_drawn_ = false;
};

Json PointsToJson(const std::vector<Axis>& axes, const std::vector<Point>& points) {
  Json json = {{"schema", "trainctl.plan-sweep.v1"}, {"keys", Json::array()}, {"points", Json::array()}};
  for (const Axis& axis : axes) json["keys"].push_back(axis.key);
  for (const Point& point : points) {
    Json entry = {{"values", Json::object()}};
    for (size_t i = 0; i < axes.size(); ++i) entry["values"][axes[i].key] = point.values[i];
    if (point.figures.has_value()) {
      entry["chosen"] = point.figures->chosen;
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
  TRAINCTL_ASSIGN_OR_RETURN(const frameworks::ClusterPlanOptions search, SearchOptionsOf(options, 1));
  std::vector<Point> points = PointsOf(axes);
  bool has_plan = false;
  PointPrinter printer(axes, output.stdout_color);
  SweepProgress progress(points.size(), output.stderr_terminal);
  for (size_t i = 0; i < points.size(); ++i) {
    Point& point = points[i];
    progress.Begin(i);
    absl::StatusOr<Figures> figures = PlanAt(options, search, axes, point.values);
    point.status = InWordsOfSweep(figures.status(), axes);
    if (figures.ok()) point.figures = *std::move(figures);
    has_plan |= point.figures.has_value();
    if (output.json) continue;
    progress.Clear();
    printer.Add(point);
  }
  progress.Clear();
  // One mistake that all share is the error; else the rows say what could not be.
  if (!has_plan) return points[0].status;
  if (output.json) {
    std::puts(PrintableJson(PointsToJson(axes, points), 2).c_str());
  }
  return ExitCode::kOk;
}

}  // namespace trainctl::cli
