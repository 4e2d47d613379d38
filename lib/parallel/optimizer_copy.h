// A second place for what a checkpoint holds of this rank: its masters and the optimizer's state. Taken
// between two steps, it stays what it is while the next steps change the state, so that a thread can write it
// out.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/sharded_state.h"

namespace trainctl::parallel {

class OptimizerCopy {
 public:
  // Allocates what the schedule calls "checkpoint copy" (StepSetting::checkpoint_copy): master and state of
  // each element of this rank's shards. Host memory, wherever the state is.
  explicit OptimizerCopy(const ShardedState& state);

  void Take();  // no step may be running
  const optim::Parts& parts(int bucket) const { return parts_[static_cast<size_t>(bucket)]; }

 private:
  const ShardedState& state_;
  at::Tensor storage_;
  std::vector<optim::Parts> parts_;  // within storage_
};

}  // namespace trainctl::parallel
