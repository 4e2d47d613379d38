// Time of a lowered pipeline schedule, given what a pass of each stage costs. Plays the lists of
// pipeline_lowered.h with every rank going on as soon as it can; linear in the number of
// instructions. Pure, thread safe.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "schedule/pipeline_lowered.h"

namespace trainctl::schedule {

// Of one micro-batch through one stage, in seconds.
struct StageCosts {
  double forward_s = 0;
  double input_backward_s = 0;
  double weight_backward_s = 0;
  double backward_s = -1;  // both backwards in one pass; negative: their sum
};

struct PipelineCosts {
  std::vector<StageCosts> stages;  // by stage, or one for all
  double send_s = 0;               // one tensor at a border: bytes over bandwidth, occupies the link
  double latency_s = 0;            // from its end to the arrival
  bool overlap_sends = true;       // false: the sending rank does nothing else meanwhile
  // A joined forward and backward take max + (1 - joined_overlap) * min of their two times:
  // 0 one after the other, 1 the shorter one is free.
  double joined_overlap = 0;
};

struct Interval {
  double start_s = 0;
  double end_s = 0;
};

struct PipelineTimes {
  double makespan_s = 0;
  std::vector<double> busy_s;    // by rank: passes, and sends that are not overlapped
  std::vector<double> bubble_s;  // by rank: makespan - busy
  // By rank: from the start of its first pass to the end of its last, less the busy time: what the
  // zero-bubble papers call the bubble, for whom the next step may begin at once.
  std::vector<double> inner_bubble_s;
  std::vector<int> peak_in_flight;  // by rank: stage activations held at once, forward to last backward
  std::vector<std::vector<Interval>> intervals;  // [rank][instruction], if they were asked for
  double max_bubble_s() const;
  double max_inner_bubble_s() const;
};

// `lowered` has been checked (CheckPipeline). UsageError if the costs are not finite, negative, or
// not those of one stage or all of them.
absl::StatusOr<PipelineTimes> SimulatePipeline(const LoweredPipeline& lowered, const PipelineCosts& costs,
                                               bool keep_intervals = false);

}  // namespace trainctl::schedule
