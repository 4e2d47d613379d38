// Times of passes by stage: the cost model of an order whose stages are priced as wholes
// (schedule::ExpandOrder). Pure; thread safe.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "schedule/pipeline.h"
#include "schedule/step.h"
#include "simulate/play.h"

namespace trainctl::simulate {

// Of one micro-batch through one stage, in seconds.
struct StageCosts {
  double forward_s = 0;
  double input_backward_s = 0;
  double weight_backward_s = 0;
  double backward_s = -1;  // both backwards in one pass; negative: their sum

  double SecondsOf(schedule::Op op) const;
  bool operator==(const StageCosts&) const = default;
};

struct PipelineCosts {
  std::vector<StageCosts> stages;  // by stage, or one for all
  double send_s = 0;               // one tensor at a border: bytes over bandwidth, occupies the link
  double latency_s = 0;            // from its end to the arrival
  bool overlap_sends = true;       // false: the sending rank does nothing else meanwhile
  double joined_overlap = 0;       // PlayOptions

  const StageCosts& Of(int stage) const {
    return stages[stages.size() == 1 ? 0 : static_cast<size_t>(stage)];
  }
  bool operator==(const PipelineCosts&) const = default;
};

// `step` is an order's, with its sends where overlap_sends says. UsageError if the costs are not finite,
// negative, or not those of one stage or all of them.
absl::StatusOr<Played> PlayPasses(const schedule::Step& step, const PipelineCosts& costs);

// An order to be played with many costs.
struct PassList {
  schedule::PipelinePlacement placement;
  PlayList list;
};
// `sends_on_compute`, and errors, as of schedule::ExpandOrder.
absl::StatusOr<PassList> MakePassList(const schedule::PipelineSchedule& order, bool sends_on_compute);
// Seconds to the end of the last instruction. Errors as above.
absl::StatusOr<double> PlayPassesToEnd(const PassList& passes, const PipelineCosts& costs);

}  // namespace trainctl::simulate
