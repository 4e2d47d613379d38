// The weights of a model in fp32 on the CPU, block by block: what one-process jobs on a checkpoint compute
// with. Blocks for which there is room are read once, the others each time that they are asked for, so that a
// model may be larger than the memory. Not thread safe.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/model_folder.h"
#include "device/error_text.h"
#include "layout/ledger.h"
#include "model/model_spec.h"
#include "nn/bound_parameters.h"
#include "trainer/run_worker.h"

namespace trainctl::trainer {

class BlockWeights {
 public:
  // Those of the checkpoint, or those that the run begins with. Looks whether they are of this model; no
  // tensor is read. BadDataError: they are not. Borrows `deps`.
  static absl::StatusOr<std::unique_ptr<BlockWeights>> Open(const InferenceDeps& deps);

  const model::ModelSpec& spec() const { return spec_; }
  const std::vector<model::Parameter>& inventory() const { return ledger_.inventory(); }
  // Whether all blocks stay once they are read.
  bool all_stay() const { return all_stay_; }

  // What a block computes with, until another is asked for. BadDataError: what is read is damaged or not
  // finite.
  absl::StatusOr<const nn::BoundParameters*> Of(int block);
  // Elements of a parameter from its `begin`-th on, row-major.
  absl::Status Read(int parameter, int64_t begin, absl::Span<float> values) const;

 private:
  explicit BlockWeights(const InferenceDeps& deps);
  absl::Status ReadCheckpoint(const model::Parameter& parameter, int64_t begin,
                              absl::Span<float> values) const;
  absl::Status ReadBucket(int bucket);

  const InferenceDeps& deps_;
  const model::ModelSpec& spec_;
  const layout::Ledger ledger_;
  std::optional<checkpoint::CheckpointReader> reader_;
  std::optional<checkpoint::ModelFolder> folder_;
  bool all_stay_ = true;
  std::vector<bool> stays_;                 // by bucket
  std::vector<at::Tensor> buckets_;         // undefined: not there
  std::vector<nn::BoundParameters> bound_;  // by block
};

// What `function` returns, computed with the threads of `deps`; what LibTorch throws becomes an error.
template <typename Function>
auto Guarded(const InferenceDeps& deps, const Function& function) -> decltype(function()) {
  try {
    at::set_num_threads(deps.threads);
    return function();
  } catch (const std::exception& error) {
    return InternalError(device::ErrorText(error));
  }
}

}  // namespace trainctl::trainer
