#include "report/draw_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/json.h"
#include "base/units.h"
#include "simulate/timeline.h"

namespace trainctl::report {
namespace {

using schedule::Op;

struct Mark {
  Op op;
  char letter;
  int background;  // ANSI
  const char* name;
};
constexpr Mark kMarks[] = {
    {Op::kForward, 'F', 44, "forward"},
    {Op::kRecompute, 'R', 46, "recompute"},
    {Op::kLoss, 'L', 45, "loss"},
    {Op::kLossAndGradient, 'L', 45, "loss and gradient"},
    {Op::kBackward, 'B', 42, "backward"},
    {Op::kBackwardInput, 'I', 46, "input backward"},
    {Op::kBackwardWeight, 'W', 45, "weight backward"},
    {Op::kSend, 'P', 43, "pass on"},
    {Op::kReceive, 'P', 43, "pass on"},
    {Op::kGather, 'G', 43, "gather"},
    {Op::kReduceGradient, 'S', 41, "reduce"},
    {Op::kSumCopies, 'S', 41, "reduce"},
    {Op::kGradNorm, 'N', 47, "gradient norm"},
    {Op::kOptimizerStep, 'U', 43, "update"},
    {Op::kGatherUpdated, 'G', 43, "gather updated"},
    {Op::kCountLossTokens, 'C', 47, "sums of scalars"},
    {Op::kReduceLoss, 'C', 47, "sums of scalars"},
};

const Mark& MarkOf(Op op) {
  return *std::find_if(std::begin(kMarks), std::end(kMarks), [&](const Mark& mark) { return mark.op == op; });
}

std::string Seconds(double seconds) {
  if (seconds >= 1) return absl::StrFormat("%.2f s", seconds);
  if (seconds >= 1e-3) return absl::StrFormat("%.2f ms", seconds * 1e3);
  return absl::StrFormat("%.0f us", seconds * 1e6);
}

// One stream in `columns` columns.
std::string Row(const schedule::Program& program, const simulate::Timeline& timeline, int stream,
                size_t columns, double width, bool color) {
  std::vector<std::array<double, std::size(kMarks)>> seconds(columns);
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (program.instructions[i].stream != stream || width <= 0) continue;
    const size_t mark = static_cast<size_t>(&MarkOf(program.instructions[i].op) - kMarks);
    const simulate::InstructionTime& time = timeline.times[i];
    const size_t first = std::min(columns - 1, static_cast<size_t>(time.begin_s / width));
    for (size_t c = first; c < columns; ++c) {
      const double from = std::max(time.begin_s, static_cast<double>(c) * width);
      const double to = std::min(time.end_s(), static_cast<double>(c + 1) * width);
      if (to <= from) break;
      seconds[c][mark] += to - from;
    }
  }
  std::string text;
  for (const auto& column : seconds) {
    const auto most = std::max_element(column.begin(), column.end());
    double busy = 0;
    for (const double s : column) busy += s;
    if (busy < width / 2) {
      text += '.';
      continue;
    }
    const Mark& mark = kMarks[most - column.begin()];
    if (color) {
      absl::StrAppendFormat(&text, "\x1b[30;%dm%c\x1b[0m", mark.background, mark.letter);
    } else {
      text += mark.letter;
    }
  }
  return text;
}

std::string Micros(double seconds) { return absl::StrFormat("%.3f", seconds * 1e6); }

std::string Quoted(absl::string_view text) { return FormatAsciiJson(Json(std::string(text))); }

simulate::Timeline Play(const plan::Plan& plan, const model::Architecture& spec,
                        const plan::PlannedStep& planned, int own_class = 0) {
  return simulate::PlayStep(planned.step, planned.ledger, planned.options, plan.rates, own_class);
}

// A drawing in the making.
class PlanDrawing {
 public:
  PlanDrawing(size_t columns, double end_s, bool color)
      : columns_(columns), width_(end_s / static_cast<double>(columns)), color_(color) {}

  // Of a class of ranks; `prefix` before the names of its streams. Of a pipeline its passes alone: messages
  // and sums are too short to be seen.
  void Add(const schedule::Program& program, const simulate::Timeline& timeline, const std::string& prefix) {
    std::vector<double> busy(program.streams.size(), 0);
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const schedule::Instruction& instruction = program.instructions[i];
      busy[static_cast<size_t>(instruction.stream)] += timeline.times[i].seconds;
      if (prefix.empty() || instruction.stream == schedule::kComputeStream)
        used_[static_cast<size_t>(&MarkOf(instruction.op) - kMarks)] = true;
    }
    for (size_t s = 0; s < program.streams.size(); ++s) {
      if (busy[s] <= 0 || (!prefix.empty() && s != schedule::kComputeStream)) continue;
      absl::StrAppendFormat(&text_, "%-7s |%s\n", prefix.empty() ? program.streams[s].name : prefix,
                            Row(program, timeline, static_cast<int>(s), columns_, width_, color_));
    }
    compute_.push_back(busy[schedule::kComputeStream]);
  }

  std::string text() const {
    std::string legend;
    for (size_t mark = 0; mark < std::size(kMarks); ++mark) {
      const std::string entry = absl::StrCat(std::string(1, kMarks[mark].letter), " ", kMarks[mark].name);
      if (!used_[mark] || absl::StrContains(legend, entry)) continue;
      absl::StrAppend(&legend, legend.empty() ? "" : ", ", entry);
    }
    return absl::StrCat(text_, legend, ", . idle\n");
  }
  double width() const { return width_; }
  const std::vector<double>& compute() const { return compute_; }  // seconds, by class

 private:
  const size_t columns_;
  const double width_;
  const bool color_;
  std::string text_;
  std::array<bool, std::size(kMarks)> used_ = {};
  std::vector<double> compute_;
};

}  // namespace

std::string DrawPlan(const plan::Plan& plan, const model::Architecture& spec, const DrawOptions& options) {
  const plan::PlannedStep planned = plan::BuildStep(plan, spec);
  const int num_classes = static_cast<int>(planned.step.programs.size());
  std::vector<simulate::Timeline> timelines;
  for (int c = 0; c < num_classes; ++c) timelines.push_back(Play(plan, spec, planned, c));
  const simulate::Timeline& longest = *std::max_element(
      timelines.begin(), timelines.end(),
      [](const simulate::Timeline& a, const simulate::Timeline& b) { return a.end_s < b.end_s; });
  constexpr int kMargin = 9;
  PlanDrawing drawing(static_cast<size_t>(std::max(10, options.width - kMargin - 1)), longest.end_s,
                      options.color);
  for (int c = 0; c < num_classes; ++c) {
    drawing.Add(planned.step.programs[static_cast<size_t>(c)], timelines[static_cast<size_t>(c)],
                num_classes == 1 ? "" : absl::StrCat("pp ", c));
  }
  const std::vector<double>& compute = drawing.compute();
  const auto [least, most] = std::minmax_element(compute.begin(), compute.end());
  const auto idle = [&](double seconds) { return std::max(0.0, 1 - seconds / longest.step_seconds) * 100; };
  const int64_t workers = plan.layout.mesh.world_size() / num_classes;
  std::string text =
      absl::StrFormat("%s: %s%s; a column is %s\n", plan.layout.ToString(), FormatNumberOf(workers, "worker"),
                      num_classes > 1 ? " in each row"
                      : workers > 1   ? " do the same work"
                                      : "",
                      Seconds(drawing.width()));
  absl::StrAppend(&text, drawing.text());
  if (num_classes == 1) {
    absl::StrAppendFormat(&text, "Step of %s: compute %s, data and log %s, idle %.1f %% of the time.\n",
                          Seconds(longest.step_seconds), Seconds(*most),
                          Seconds(longest.step_seconds - longest.end_s), idle(*most));
  } else {
    absl::StrAppendFormat(
        &text, "Step of %s: compute %s to %s, data and log %s, idle %.1f to %.1f %% of the time.\n",
        Seconds(longest.step_seconds), Seconds(*least), Seconds(*most),
        Seconds(longest.step_seconds - longest.end_s), idle(*most), idle(*least));
  }
  return text;
}

std::string TraceOfPlan(const plan::Plan& plan, const model::Architecture& spec, absl::string_view title) {
  const plan::PlannedStep planned = plan::BuildStep(plan, spec);
  const size_t num_classes = planned.step.programs.size();
  std::string events;
  double step_seconds = 0;
  const auto add = [&](const std::string& event) {
    absl::StrAppend(&events, events.empty() ? "" : ",\n", "{", event, "}");
  };
  for (size_t c = 0; c < num_classes; ++c) {
    const schedule::Program& program = planned.step.programs[c];
    const simulate::Timeline timeline = Play(plan, spec, planned, static_cast<int>(c));
    step_seconds = std::max(step_seconds, timeline.step_seconds);
    const size_t workers = static_cast<size_t>(plan.layout.mesh.world_size()) / num_classes;
    const std::string who =
        absl::StrCat("each of ", workers, " workers", num_classes > 1 ? absl::StrCat(", pp ", c) : "");
    add(absl::StrCat("\"ph\":\"M\",\"pid\":", c,
                     ",\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":", Quoted(who), "}"));
    for (size_t s = 0; s < program.streams.size(); ++s) {
      add(absl::StrCat("\"ph\":\"M\",\"pid\":", c, ",\"tid\":", s + 1,
                       ",\"name\":\"thread_name\",\"args\":{\"name\":", Quoted(program.streams[s].name),
                       "}"));
    }
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const schedule::Instruction& instruction = program.instructions[i];
      add(absl::StrCat("\"ph\":\"X\",\"pid\":", c, ",\"tid\":", instruction.stream + 1, ",\"ts\":",
                       Micros(timeline.times[i].begin_s), ",\"dur\":", Micros(timeline.times[i].seconds),
                       ",\"name\":", Quoted(schedule::Describe(instruction)),
                       ",\"cat\":", Quoted(schedule::OpName(instruction.op))));
    }
    for (const simulate::MemorySample& sample : timeline.memory) {
      std::string bytes;
      for (int k = 0; k < schedule::kNumCategories; ++k) {
        absl::StrAppend(&bytes, k == 0 ? "" : ",",
                        Quoted(schedule::CategoryName(static_cast<schedule::Category>(k))), ":",
                        sample.bytes[static_cast<size_t>(k)]);
      }
      add(absl::StrCat("\"ph\":\"C\",\"pid\":", c, ",\"name\":\"memory, bytes\",\"ts\":",
                       Micros(sample.time_s), ",\"args\":{", bytes, "}"));
    }
  }
  return absl::StrCat("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"title\":", Quoted(title),
                      ",\"step_hash\":\"", plan.step_hash, "\",\"step_us\":", Micros(step_seconds),
                      "},\n\"traceEvents\":[\n", events, "\n]}\n");
}

}  // namespace trainctl::report
