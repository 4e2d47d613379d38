// The end of a step: the squares of its gradients, and the update of what a rank owns of the parameters.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "optim/optimizer.h"
#include "parallel/sharded_state.h"

namespace trainctl::parallel {

// What the optimizer needs to know of one step.
struct UpdateOptions {
  float lr = 0;
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float eps = 1e-8f;
  float momentum = 0.9f;
  float weight_decay = 0;
  std::vector<bool> decay;    // by inventory index: weight decay applies
  double clip_norm = 0;       // 0 = off
  int64_t update_number = 1;  // 1-based count of applied updates, for bias correction and rounding
  uint64_t seed = 0;          // of roundings to bf16 masters
  float z_loss = 0;
  bool apply = true;  // false: gradients only (verify, tests)
};

class ParameterUpdate {
 public:
  // Borrows everything. `threads`: of a CPU.
  ParameterUpdate(const ShardedState& state, const optim::Optimizer& optimizer, int64_t threads,
                  const UpdateOptions& options)
      : state_(state), optimizer_(optimizer), threads_(threads), options_(options) {}

  const UpdateOptions& options() const { return options_; }
  // The same for the kernels, but for the factor of clipping.
  kernels::UpdateOptions KernelOptions() const;

  // *squares, memory of the device, += those of this rank's gradients that count in the norm.
  void AddSquares(double* squares) const;

  // This rank's part of a bucket is updated by the next Launch, with all that were added since the last one;
  // on a device that is one launch, whatever their number.
  void Add(int bucket);
  void Launch(const kernels::UpdateOptions* there);  // memory of the device

 private:
  // Adjacent parameters of a bucket that are treated alike are one range, named after the first.
  struct BucketRange {
    int bucket;
    layout::ParameterRange range;
  };
  template <typename Property>
  std::vector<layout::ParameterRange> MergedRanges(int bucket, const Property& is) const;
  // Its elements [begin, end). An element's number follows from its bucket and its place there, so that
  // copies of a parameter are rounded alike.
  kernels::UpdateRange RangeOf(const BucketRange& of, int64_t begin, int64_t end) const;
  const kernels::MasterKernels& Masters() const {
    return state_.device().kernels().Masters(state_.master_dtype());
  }
  bool Decays(int parameter) const { return options_.decay[static_cast<size_t>(parameter)]; }

  const ShardedState& state_;
  const optim::Optimizer& optimizer_;
  const int64_t threads_;
  const UpdateOptions& options_;
  std::vector<BucketRange> added_;
};

}  // namespace trainctl::parallel
