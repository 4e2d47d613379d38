// What the families of orders share: see PipelineOrder in pipeline_orders.h.
#pragma once

#include <vector>

#include "schedule/pipeline.h"

namespace trainctl::schedule {

// Forwards and backwards of one rank of a looped placement (stage = chunk * ranks + rank), depth
// first: micro-batches go in groups of at least `ranks` (all of them, if there are fewer), and a
// group passes through all chunks of the rank before the next one starts. Groups are as even as
// can be, larger ones first; with ranks | micro-batches this is Megatron-LM's order.
class DepthFirstOrder {
 public:
  DepthFirstOrder(int num_ranks, int num_micro_batches, int num_chunks);

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

// Completes orders of forwards and input backwards with the weight backwards: plays them with
// passes of one unit each, everything as early as possible. A weight backward runs where the rank
// would wait otherwise, or where the forwards that come next would exceed `max_in_flight[rank]`
// stage activations (held from the forward to the weight backward). Oldest weight backward first.
void FillWithWeightBackwards(PipelineSchedule& schedule, const std::vector<int>& max_in_flight);

}  // namespace trainctl::schedule
