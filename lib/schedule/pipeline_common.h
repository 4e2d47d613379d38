// Internal to the builders of pipeline schedules: algorithms that several families share. See PipelineOrder
// in pipeline_orders.h.
#pragma once

#include <vector>

#include "schedule/pipeline.h"

namespace trainctl::schedule {

// The depth-first order of one rank's forwards and backwards in a looped placement (stage = chunk * ranks +
// rank). Micro-batches are processed in groups of at least `num_ranks`, or in one group if there are fewer. A
// group passes through all chunks of the rank before the next group starts. Group sizes differ by at most
// one, and larger groups come first. If `num_ranks` divides the number of micro-batches, this is
// Megatron-LM's order.
class DepthFirstOrder {
 public:
  DepthFirstOrder(int num_ranks, int num_micro_batches, int num_chunks);

  // The chunk and micro-batch of a pass.
  struct Place {
    int chunk = 0;
    int micro_batch = 0;
  };
  int num_passes() const { return static_cast<int>(forward_.size()); }
  int largest_group() const { return largest_group_; }
  Place Forward(int index) const { return forward_[static_cast<size_t>(index)]; }
  Place Backward(int index) const {
    const Place forward = Forward(index);
    return {num_chunks_ - 1 - forward.chunk, forward.micro_batch};
  }

 private:
  int num_chunks_;
  int largest_group_ = 0;
  std::vector<Place> forward_;
};

// Adds the weight backwards to a schedule of forwards and input backwards. Simulates the schedule with passes
// that all take one unit of time and start as early as possible. A rank runs its oldest weight backward if it
// would otherwise be idle, or if the next forwards would exceed `max_in_flight[rank]` stage activations,
// which are held from the forward to the weight backward.
void FillWithWeightBackwards(PipelineSchedule& schedule, const std::vector<int>& max_in_flight);

}  // namespace trainctl::schedule
