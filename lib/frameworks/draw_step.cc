#include "frameworks/draw_step.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "frameworks/timeline.h"
#include "report/draw_order.h"

namespace trainctl::frameworks {
namespace {

std::string Seconds(double seconds) {
  if (seconds >= 1) return absl::StrFormat("%.2f s", seconds);
  if (seconds >= 1e-3) return absl::StrFormat("%.2f ms", seconds * 1e3);
  return absl::StrFormat("%.0f us", seconds * 1e6);
}

// The shortest pass, so that none is lost between two cells; but not that of a stage of next to no layers,
// which would make all others wide.
double CellSeconds(const simulate::PipelineCosts& costs, bool split_backwards) {
  using Cost = double simulate::StageCosts::*;
  std::vector<Cost> kinds = {&simulate::StageCosts::forward_s, &simulate::StageCosts::backward_s};
  if (split_backwards) {
    kinds = {&simulate::StageCosts::forward_s, &simulate::StageCosts::input_backward_s,
             &simulate::StageCosts::weight_backward_s};
  }
  double shortest = 0;
  for (const Cost kind : kinds) {
    std::vector<double> passes;
    for (const simulate::StageCosts& stage : costs.stages) passes.push_back(stage.*kind);
    std::sort(passes.begin(), passes.end());
    const double least = passes[passes.size() / 2] / 2;
    const auto pass =
        std::find_if(passes.begin(), passes.end(), [&](double s) { return s > 0 && s >= least; });
    if (pass != passes.end() && (shortest == 0 || *pass < shortest)) shortest = *pass;
  }
  return shortest;
}

// ANSI backgrounds of F, B, I, W as report/draw_order.cc has them; brighter for every second round of stages.
constexpr std::array<int, 4> kBackgrounds = {44, 42, 46, 45};

// The whole step in so many columns: of each the pass that takes most of it, or a dot where idling does.
class Overview {
 public:
  Overview(const PlayedPipeline& played, const DrawStepOptions& options)
      : played_(played), options_(options), digits_(absl::StrCat(played.step.programs.size() - 1).size()) {}

  // Columns of time.
  size_t columns() const {
    const size_t margin = digits_ + 7;  // "rank N |"
    const size_t width = static_cast<size_t>(std::max(options_.width, 1));
    return width > margin + 1 ? width - margin - 1 : 1;
  }
  double ColumnSeconds() const { return played_.times.end_s / static_cast<double>(columns()); }

  std::string Run() const {
    std::string text;
    for (size_t r = 0; r < played_.step.programs.size(); ++r) {
      absl::StrAppendFormat(&text, "rank %*d |", static_cast<int>(digits_), static_cast<int>(r));
      for (const Column& column : ColumnsOf(r)) {
        const auto most = std::max_element(column.begin(), column.end());
        const size_t kind = static_cast<size_t>(most - column.begin());
        Cell(kind, *most, text);
      }
      text += '\n';
    }
    return text;
  }

 private:
  // Seconds by kind of pass, in even rounds of stages and in odd ones; the last is idle.
  using Column = std::array<double, 9>;

  std::vector<Column> ColumnsOf(size_t r) const {
    const double width = ColumnSeconds();
    Column empty = {};
    empty.back() = width;
    std::vector<Column> columns(this->columns(), empty);
    const std::vector<schedule::Instruction>& list = played_.step.programs[r].instructions;
    bool joined = false;
    for (size_t i = 0; i < list.size(); ++i) {
      if (!RunsBlock(list[i].op)) continue;
      const bool odd = list[i].block / played_.step.placement.num_ranks % 2 == 1;
      const size_t kind = static_cast<size_t>(report::PassOf(list[i].op)) + (odd ? 4 : 0);
      simulate::InstructionTime time = played_.times.classes[r].times[i];
      // Both of a joined pair have the interval of the two.
      if (list[i].joined || joined) time.seconds /= 2;
      if (joined) time.begin_s += time.seconds;
      joined = list[i].joined;
      Spread(time, kind, width, columns);
    }
    return columns;
  }

  static void Spread(const simulate::InstructionTime& time, size_t kind, double width,
                     std::vector<Column>& columns) {
    if (!(width > 0)) return;
    const size_t first =
        std::min(columns.size() - 1, static_cast<size_t>(std::max(0.0, time.begin_s / width)));
    for (size_t c = first; c < columns.size(); ++c) {
      const double from = std::max(time.begin_s, static_cast<double>(c) * width);
      const double to = std::min(time.end_s(), static_cast<double>(c + 1) * width);
      if (to <= from) break;
      columns[c][kind] += to - from;
      columns[c].back() -= to - from;
    }
  }

  void Cell(size_t kind, double seconds, std::string& text) const {
    if (kind == 8 || seconds <= 0) {
      text += '.';
      return;
    }
    const char letter = schedule::PipelinePassLetter(static_cast<schedule::PipelineOp>(kind % 4));
    const bool odd = kind >= 4;
    const char shown = odd ? absl::ascii_tolower(static_cast<unsigned char>(letter)) : letter;
    if (options_.color) {
      absl::StrAppendFormat(&text, "\x1b[30;%dm%c\x1b[0m", kBackgrounds[kind % 4] + (odd ? 60 : 0), shown);
    } else {
      text += shown;
    }
  }

  const PlayedPipeline& played_;
  const DrawStepOptions& options_;
  const size_t digits_;
};

}  // namespace

std::string DrawStep(const Workload& w, const DrawStepOptions& options) {
  const StepParts parts = PartsOfStep(w);
  // More passes than this do not fit any terminal.
  TimelineOptions play;
  play.max_passes = 20'000;
  const PlayedPipeline played = PlayPipeline(w, parts, play);
  const int64_t micro_batches = w.num_micro_batches();
  const absl::string_view name =
      w.mesh.pp == 1 ? absl::string_view("no pipeline") : schedule::PipelineKindName(w.Pipeline());
  const simulate::StageCosts& stage = played.costs.stages.front();
  double busy = 0;
  for (const simulate::PlayedClass& rank : played.times.classes) busy += rank.busy_s;
  const double idle = 1 - busy / (played.times.end_s * static_cast<double>(played.times.classes.size()));

  const bool split = w.mesh.pp > 1 && schedule::OrderOf(w.Pipeline()).splits_backward;
  const double cell_s = CellSeconds(played.costs, split);
  std::string text;
  absl::StrAppendFormat(&text, "%s: %d rank%s, %d micro-batch%s\n", name, w.mesh.pp,
                        w.mesh.pp == 1 ? "" : "s", micro_batches, micro_batches == 1 ? "" : "es");
  report::DrawOrderOptions draw;
  draw.width = options.width;
  draw.color = options.color;
  draw.cell_s = cell_s;
  const Overview overview(played, options);
  const size_t cell_width = absl::StrCat(played.step.placement.num_micro_batches - 1).size() + 2;
  const bool all_fits = played.times.end_s / cell_s * static_cast<double>(cell_width) <=
                        static_cast<double>(overview.columns());
  if (!all_fits) {
    absl::StrAppendFormat(&text, "The passes, a column is %s", Seconds(overview.ColumnSeconds()));
    if (played.left_out_micro_batches > 0) {
      absl::StrAppendFormat(&text, "; %d micro-batches that repeat the middle are left out",
                            played.left_out_micro_batches);
    }
    absl::StrAppend(&text, ":\n", overview.Run());
  }
  absl::StrAppendFormat(&text, "%s by micro-batch, a cell is %s:\n",
                        all_fits ? "The passes" : "How it begins", Seconds(cell_s));
  absl::StrAppend(&text, report::DrawOrder(played.step, played.times, draw));
  absl::StrAppendFormat(&text,
                        "First stage: forward %s, backward %s. Idle: %.1f %% of the time of all ranks.\n",
                        Seconds(stage.forward_s), Seconds(stage.backward_s), idle * 100);
  absl::StrAppendFormat(
      &text, "Passes %s, data parallelism %s, optimizer %s: a step of %s.\n",
      Seconds(parts.price.step_seconds - parts.price.data_seconds - parts.price.optimizer_seconds),
      Seconds(parts.price.data_seconds), Seconds(parts.price.optimizer_seconds),
      Seconds(parts.price.step_seconds));
  return text;
}

}  // namespace trainctl::frameworks
