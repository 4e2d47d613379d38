#include "planner/draw_step.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "pricing/timeline.h"
#include "schedule/pipeline_draw.h"

namespace trainctl::planner {
namespace {

std::string Seconds(double seconds) {
  if (seconds >= 1) return absl::StrFormat("%.2f s", seconds);
  if (seconds >= 1e-3) return absl::StrFormat("%.2f ms", seconds * 1e3);
  return absl::StrFormat("%.0f us", seconds * 1e6);
}

// The shortest pass, so that none is lost between two cells; but not one so short (a stage of next to no
// layers) that it would make all others wide.
double CellSeconds(const schedule::PipelineCosts& costs, bool split_backwards) {
  std::vector<double> passes;
  for (const schedule::StageCosts& stage : costs.stages) {
    passes.push_back(stage.forward_s);
    if (split_backwards) {
      passes.insert(passes.end(), {stage.input_backward_s, stage.weight_backward_s});
    } else {
      passes.push_back(stage.backward_s);
    }
  }
  std::sort(passes.begin(), passes.end());
  const double least = passes[passes.size() / 2] / 4;
  for (const double seconds : passes) {
    if (seconds >= least) return seconds;
  }
  return least;
}

}  // namespace

std::string DrawStep(const pricing::Workload& w, const DrawStepOptions& options) {
  const pricing::StepParts parts = pricing::PartsOfStep(w);
  // More passes than this do not fit any terminal.
  pricing::TimelineOptions play;
  play.max_passes = 20'000;
  const pricing::PlayedPipeline played = pricing::PlayPipeline(w, parts, play);
  const int64_t micro_batches = w.num_micro_batches();
  const absl::string_view name =
      w.degrees.pp == 1 ? absl::string_view("no pipeline") : schedule::PipelineKindName(w.Pipeline());
  const schedule::StageCosts& stage = played.costs.stages.front();
  double busy = 0;
  for (const double seconds : played.times.busy_s) busy += seconds;
  const double idle = 1 - busy / (played.times.makespan_s * static_cast<double>(played.times.busy_s.size()));

  const bool split = w.degrees.pp > 1 && schedule::LimitsOf(w.Pipeline()).splits_backward;
  const double cell_s = CellSeconds(played.costs, split);
  std::string text;
  absl::StrAppendFormat(&text, "%s: %d rank%s, %d micro-batch%s; a cell is %s\n", name, w.degrees.pp,
                        w.degrees.pp == 1 ? "" : "s", micro_batches, micro_batches == 1 ? "" : "es",
                        Seconds(cell_s));
  schedule::DrawOptions draw;
  draw.width = options.width;
  draw.color = options.color;
  draw.cell_s = cell_s;
  absl::StrAppend(&text, schedule::DrawPipeline(played.lowered, played.times, draw));
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

}  // namespace trainctl::planner
