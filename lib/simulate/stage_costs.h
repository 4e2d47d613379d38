// Plays a pipeline order with one cost per stage and kind of pass, instead of one per block
// (schedule::ExpandOrder). Pure functions; thread-safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(PassList passes, MakePassList(order, /*sends_on_compute=*/false));
//   TRAINCTL_ASSIGN_OR_RETURN(double seconds, PlayPassesToEnd(passes, costs));
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "schedule/pipeline.h"
#include "schedule/step.h"
#include "simulate/play.h"

namespace trainctl::simulate {

// The times, in seconds, of the passes of one micro-batch in one stage.
struct StageCosts {
  double forward_s = 0;
  double input_backward_s = 0;
  double weight_backward_s = 0;
  double backward_s = -1;  // both backwards in one pass; if negative, the sum of the two above

  // Returns the time of a pass. `op` must be kForward, kBackward, kBackwardInput or kBackwardWeight.
  double SecondsOf(schedule::Op op) const;
  bool operator==(const StageCosts&) const = default;
};

struct PipelineCosts {
  std::vector<StageCosts> stages;  // one per stage, or one for all
  double send_s = 0;               // time that a message between stages occupies the link: bytes / bandwidth
  double latency_s = 0;            // time from the end of a send to the arrival of its message
  // Whether sends overlap with compute. The functions below do not read this. The caller passes
  // `!overlap_sends` as `sends_on_compute` when it expands the order.
  bool overlap_sends = true;
  double joined_overlap = 0;  // as in PlayOptions, from 0 to 1

  const StageCosts& Of(int stage) const {
    return stages[stages.size() == 1 ? 0 : static_cast<size_t>(stage)];
  }
  bool operator==(const PipelineCosts&) const = default;
};

// Plays a step that schedule::ExpandOrder made. Returns UsageError if a cost is negative, infinite or NaN
// (except that `backward_s` may be negative), if joined_overlap is above 1, or if `costs.stages` has neither
// one entry nor one per stage. Returns InternalError if ranks wait for each other forever.
absl::StatusOr<Played> PlayPasses(const schedule::Step& step, const PipelineCosts& costs);

// A prepared order, which can be played with many costs.
struct PassList {
  schedule::PipelinePlacement placement;
  PlayList list;
};
// Prepares an order. `sends_on_compute` and the errors are those of schedule::ExpandOrder. Also returns
// InternalError if ranks wait for each other forever.
absl::StatusOr<PassList> MakePassList(const schedule::PipelineSchedule& order, bool sends_on_compute);
// Returns the time, in seconds, at which the last instruction ends. Returns UsageError as PlayPasses does.
absl::StatusOr<double> PlayPassesToEnd(const PassList& passes, const PipelineCosts& costs);

}  // namespace trainctl::simulate
