// A copy of this rank's part of a checkpoint: its master parameters and optimizer state. Take it between two
// steps. It does not change while later steps change the state, so a thread can write it to disk meanwhile.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "parallel/sharded_state.h"

namespace trainctl::parallel {

class OptimizerCopy {
 public:
  // Allocates the memory that the schedule calls "checkpoint copy" (StepSetting::checkpoint_copy): master and
  // state of each element of this rank's shards. It is always host memory, pinned if the state is on a
  // device. `state` must outlive this.
  explicit OptimizerCopy(const ShardedState& state);

  void Take();  // blocks until copied; no step may be running
  const optim::Parts& parts(int bucket) const { return parts_[static_cast<size_t>(bucket)]; }

 private:
  const ShardedState& state_;
  at::Tensor storage_;
  std::vector<optim::Parts> parts_;  // pointers into storage_
};

}  // namespace trainctl::parallel
