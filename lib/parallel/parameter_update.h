// The end of a step on one rank: the squares of its gradients for the global norm, and the update of the
// parameters that it owns.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/update.h"
#include "optim/optimizer.h"
#include "parallel/sharded_state.h"

namespace trainctl::kernels {
struct MasterKernels;
}

namespace trainctl::parallel {

// The optimizer's options for one step.
struct UpdateOptions {
  float lr = 0;
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float eps = 1e-8f;
  float momentum = 0.9f;
  float weight_decay = 0;
  std::vector<bool> decay;    // whether weight decay applies, by inventory index
  double clip_norm = 0;       // maximum gradient norm; 0 for no clipping
  int64_t update_number = 1;  // 1-based count of applied updates, for bias correction and rounding
  uint64_t seed = 0;          // seed of the stochastic rounding to bf16 masters
  float z_loss = 0;
  bool apply = true;  // if false, computes gradients only (verify, tests)
};

class ParameterUpdate {
 public:
  // Keeps references to all arguments. `threads` is the number of CPU threads; a device ignores it.
  ParameterUpdate(const ShardedState& state, const optim::Optimizer& optimizer, int64_t threads,
                  const UpdateOptions& options)
      : state_(state), optimizer_(optimizer), threads_(threads), options_(options) {}

  const UpdateOptions& options() const { return options_; }
  // Returns the options for the kernels, with the clipping factor left at 1.
  kernels::UpdateOptions KernelOptions() const;

  // Adds the squares of this rank's gradients that count in the norm (Ledger::CountsInNorm) to *squares,
  // which is in device memory.
  void AddSquares(double* squares) const;

  // Add marks this rank's part of a bucket for the next Launch, which updates all parts that were added since
  // the previous one. On a device it passes all of them to the kernels in one call.
  void Add(int bucket);
  void Launch(const kernels::UpdateOptions* there);  // `there` is in device memory

 private:
  // Adjacent parameters of a bucket that are treated alike, as one range with the index of the first
  // parameter.
  struct BucketRange {
    int bucket;
    layout::ParameterRange range;
  };
  template <typename Property>
  std::vector<layout::ParameterRange> MergedRanges(int bucket, const Property& is) const;
  // Returns elements [begin, end) of a range. An element's number follows from its bucket and its position in
  // it, so that copies of a parameter are rounded alike.
  kernels::UpdateRange RangeOf(const BucketRange& of, int64_t begin, int64_t end) const;
  const kernels::MasterKernels& Masters() const;
  bool Decays(int parameter) const { return options_.decay[static_cast<size_t>(parameter)]; }

  const ShardedState& state_;
  const optim::Optimizer& optimizer_;
  const int64_t threads_;
  const UpdateOptions& options_;
  std::vector<BucketRange> added_;
};

}  // namespace trainctl::parallel
