// Loads the weights of a model block by block, for jobs of one process. The weights are in fp32 on the CPU,
// regardless of their type on disk. Blocks that fit into InferenceDeps::weight_bytes are read once. The
// others are read each time that they are needed, so that a model may be larger than the memory. Not
// thread-safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(const auto weights, BlockWeights::Open(deps));
//   TRAINCTL_ASSIGN_OR_RETURN(const nn::BoundParameters* parameters, weights->Of(block));
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
#include "base/dtype.h"
#include "base/json_fwd.h"
#include "base/status.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/model_folder.h"
#include "device/error_text.h"
#include "layout/ledger.h"
#include "model/graph.h"
#include "nn/bound_parameters.h"
#include "trainer/run_worker.h"

namespace trainctl::trainer {

class BlockWeights {
 public:
  // Opens the weights of the checkpoint or of the Hugging Face folder, or the run's initial random weights.
  // Reads no tensors. Borrows `deps`. Returns BadDataError if the weights do not belong to this model.
  static absl::StatusOr<std::unique_ptr<BlockWeights>> Open(const InferenceDeps& deps);

  const model::Architecture& spec() const { return spec_; }
  const std::vector<model::Parameter>& inventory() const { return ledger_.inventory(); }
  // Report fields: `checkpoint` or (for a Hugging Face folder) `model`, `weights_dtype` (the type on disk)
  // and `compute_dtype`.
  Json Describe() const;
  // Whether all blocks stay in memory once they are read.
  bool all_stay() const { return all_stay_; }

  // Returns the parameters of a block, and reads them if they are not in memory. The result is valid until
  // the next call, or for the lifetime of this object if all_stay(). Returns BadDataError if the data are
  // damaged or contain a NaN or infinity.
  absl::StatusOr<const nn::BoundParameters*> Of(int block);
  // Reads elements of a parameter into `values`, starting at element `begin` in row-major order. `parameter`
  // is an index into inventory().
  absl::Status Read(int parameter, int64_t begin, absl::Span<float> values) const;

 private:
  explicit BlockWeights(const InferenceDeps& deps);
  DType TypeOnDisk(const model::Parameter& parameter) const;
  absl::Status ReadCheckpoint(const model::Parameter& parameter, int64_t begin,
                              absl::Span<float> values) const;
  absl::Status ReadBucket(int bucket);

  const InferenceDeps& deps_;
  const model::Architecture& spec_;
  const layout::Ledger ledger_;
  std::optional<checkpoint::CheckpointReader> reader_;
  std::optional<checkpoint::ModelFolder> folder_;
  bool all_stay_ = true;
  std::vector<bool> stays_;          // whether a bucket stays in memory, by bucket
  std::vector<at::Tensor> buckets_;  // values of each bucket; undefined if not in memory
  // Lists the parameters of each block, which do not depend on the shape of the activations.
  const std::shared_ptr<const model::Graph> graph_;
  std::vector<nn::BoundParameters> bound_;  // parameters of each block
};

// Calls `function` with ATen's number of threads set to deps.threads, and returns its result. Converts an
// exception to an error (device::StatusOf).
template <typename Function>
auto Guarded(const InferenceDeps& deps, const Function& function) -> decltype(function()) {
  try {
    at::set_num_threads(deps.threads);
    return function();
  } catch (const std::exception& error) {
    return device::StatusOf(error);
  }
}

}  // namespace trainctl::trainer
