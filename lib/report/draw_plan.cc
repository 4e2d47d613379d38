#include "report/draw_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/json.h"
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
    {Op::kSumOwners, 'S', 41, "reduce"},
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
                size_t columns, bool color) {
  const double width = timeline.end_s / static_cast<double>(columns);
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

std::string Quoted(absl::string_view text) {
  return Json(std::string(text)).dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

simulate::Timeline Play(const plan::Plan& plan, const model::ModelSpec& spec,
                        const plan::PlannedStep& planned) {
  return simulate::PlayStep(planned.step, spec, planned.ledger, planned.options, plan.rates);
}

}  // namespace

std::string DrawPlan(const plan::Plan& plan, const model::ModelSpec& spec, const DrawOptions& options) {
  const plan::PlannedStep planned = plan::BuildStep(plan, spec);
  const schedule::Program& program = planned.ProgramOf(0);
  const simulate::Timeline timeline = Play(plan, spec, planned);
  constexpr int kMargin = 9;
  const size_t columns = static_cast<size_t>(std::max(10, options.width - kMargin - 1));
  std::string text =
      absl::StrFormat("%s: %d workers do the same; a column is %s\n", plan.layout.ToString(),
                      plan.layout.mesh.world_size(), Seconds(timeline.end_s / static_cast<double>(columns)));
  std::vector<double> busy(program.streams.size(), 0);
  std::array<bool, std::size(kMarks)> used = {};
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const schedule::Instruction& instruction = program.instructions[i];
    busy[static_cast<size_t>(instruction.stream)] += timeline.times[i].seconds;
    used[static_cast<size_t>(&MarkOf(instruction.op) - kMarks)] = true;
  }
  for (size_t s = 0; s < program.streams.size(); ++s) {
    if (busy[s] <= 0) continue;
    absl::StrAppendFormat(&text, "%-7s |%s\n", program.streams[s].name,
                          Row(program, timeline, static_cast<int>(s), columns, options.color));
  }
  std::string legend;
  for (size_t mark = 0; mark < std::size(kMarks); ++mark) {
    const std::string entry = absl::StrCat(std::string(1, kMarks[mark].letter), " ", kMarks[mark].name);
    if (!used[mark] || absl::StrContains(legend, entry)) continue;
    absl::StrAppend(&legend, legend.empty() ? "" : ", ", entry);
  }
  absl::StrAppend(&text, legend, ", . idle\n");
  const double compute = busy[schedule::kComputeStream];
  absl::StrAppendFormat(&text, "A step of %s: compute %s, data and log %s, idle %.1f %% of it.\n",
                        Seconds(timeline.step_seconds), Seconds(compute),
                        Seconds(timeline.step_seconds - timeline.end_s),
                        std::max(0.0, 1 - compute / timeline.step_seconds) * 100);
  return text;
}

std::string TraceOfPlan(const plan::Plan& plan, const model::ModelSpec& spec, absl::string_view title) {
  const plan::PlannedStep planned = plan::BuildStep(plan, spec);
  const schedule::Program& program = planned.ProgramOf(0);
  const simulate::Timeline timeline = Play(plan, spec, planned);
  std::string text = absl::StrCat(
      "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"title\":", Quoted(title), ",\"step_hash\":\"",
      plan.step_hash, "\",\"step_us\":", Micros(timeline.step_seconds), "},\n\"traceEvents\":[\n");
  absl::StrAppend(&text, "{\"ph\":\"M\",\"pid\":0,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":",
                  Quoted(absl::StrCat("each of ", plan.layout.mesh.world_size(), " workers")), "}}");
  for (size_t s = 0; s < program.streams.size(); ++s) {
    absl::StrAppend(&text, ",\n{\"ph\":\"M\",\"pid\":0,\"tid\":", s + 1,
                    ",\"name\":\"thread_name\",\"args\":{\"name\":", Quoted(program.streams[s].name), "}}");
  }
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const schedule::Instruction& instruction = program.instructions[i];
    absl::StrAppend(&text, ",\n{\"ph\":\"X\",\"pid\":0,\"tid\":", instruction.stream + 1,
                    ",\"ts\":", Micros(timeline.times[i].begin_s),
                    ",\"dur\":", Micros(timeline.times[i].seconds),
                    ",\"name\":", Quoted(schedule::Describe(instruction)),
                    ",\"cat\":", Quoted(schedule::OpName(instruction.op)), "}");
  }
  for (const simulate::MemorySample& sample : timeline.memory) {
    absl::StrAppend(&text,
                    ",\n{\"ph\":\"C\",\"pid\":0,\"name\":\"memory, bytes\",\"ts\":", Micros(sample.time_s),
                    ",\"args\":{");
    for (int c = 0; c < schedule::kNumCategories; ++c) {
      absl::StrAppend(&text, c == 0 ? "" : ",",
                      Quoted(schedule::CategoryName(static_cast<schedule::Category>(c))), ":",
                      sample.bytes[static_cast<size_t>(c)]);
    }
    absl::StrAppend(&text, "}}");
  }
  return text + "\n]}\n";
}

}  // namespace trainctl::report
