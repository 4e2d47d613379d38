// One step of a job, drawn: what each pipeline rank does on each of its streams and when, and what memory it
// holds meanwhile. It plays the schedule that PriceTime plays with the costs that PriceTime has, so that the
// two agree on the step, and its memory peaks where PriceMemory says. Pure; thread safe.
//
//   const Timeline timeline = BuildTimeline(workload);
//   for (const Stream& stream : timeline.ranks[0].streams) ...
//
// What is simplified: a pass is one span, its exposed exchanges are drawn together at its end though they lie
// between its layers; data-parallel ranks are alike, so that one of them stands for all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "frameworks/price_memory.h"
#include "frameworks/price_time.h"
#include "frameworks/workload.h"
#include "report/step_picture.h"

namespace trainctl::frameworks {

struct RankTimeline {
  std::vector<report::Stream> streams;  // kCompute first
  MemoryPrice memory;                   // at the rank's peak
  double state_bytes = 0;               // parameters, optimizer, gradients that stay: throughout
  double outside_bytes = 0;             // what is no tensor, and what the allocator loses: throughout
  std::vector<report::MemorySample> samples;
  double end_s = 0;  // of its last pass
};

struct Timeline {
  StepParts parts;
  std::vector<RankTimeline> ranks;  // pp of them
  int64_t num_stages = 0;
  int64_t num_micro_batches = 0;  // of the step
  // Of very long steps the schedule repeats itself; some rounds are left out then.
  int64_t left_out_micro_batches = 0;
  double left_out_s = 0;
  double data_per_forward_s = 0, data_per_backward_s = 0;  // kSpread of each pass
  double end_s = 0;  // of the optimizer; end_s + left_out_s is the time of the step
};

struct TimelineOptions {
  // Forwards and backwards of all ranks to draw at most, as far as whole rounds can be left out.
  int64_t max_passes = 200'000;
};

// `workload` is valid (Validate).
Timeline BuildTimeline(const Workload& workload, const TimelineOptions& options = {});

// The schedule as it is played for the drawing, with its times (report/draw_order.h). One rank has one stage
// here.
struct PlayedPipeline {
  schedule::Step step;
  simulate::Played times;
  simulate::PipelineCosts costs;
  int64_t left_out_micro_batches = 0;
  // In the passes of one rank: its share of what data parallelism exposes throughout them.
  double data_per_forward_s = 0, data_per_backward_s = 0;
};
PlayedPipeline PlayPipeline(const Workload& workload, const StepParts& parts,
                            const TimelineOptions& options = {});

// `timeline` as pages and traces show it.
report::StepPicture PictureOf(Timeline timeline);

}  // namespace trainctl::frameworks
