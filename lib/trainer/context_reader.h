// Reads a text that grows and says what may follow: keys and values of what was read are kept, so that a new
// token costs the same wherever it stands. The blocks are those of training (nn/segment_runner.h). fp32, on
// the CPU; sets ATen's number of threads. Not thread safe; ATen throws.
//
// A text may be longer than the window, the most tokens that are read together: when the window is full its
// older half leaves, and the newer is read anew as the beginning of a text.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/model_spec.h"
#include "nn/bound_parameters.h"
#include "nn/key_value_cache.h"
#include "nn/rope_tables.h"
#include "nn/segment_runner.h"

namespace trainctl::trainer {

class ContextReader {
 public:
  // What a block computes with, in fp32; it stays where it is until another is asked for.
  using ParametersOf = std::function<absl::StatusOr<const nn::BoundParameters*>(int block)>;
  ContextReader(const model::ModelSpec& spec, ParametersOf parameters_of, int64_t window, int threads);

  // Logits [1, vocab] of the token after `text`, which is that of the last call with more tokens (at least
  // one) at its end.
  absl::StatusOr<at::Tensor> Read(absl::Span<const int32_t> text);

  // What is left of a full window.
  static int64_t KeptOf(int64_t window) { return window > 1 ? window / 2 : 1; }

 private:
  std::vector<nn::SegmentRunner> MakeRunners(int64_t num_tokens) const;
  absl::StatusOr<at::Tensor> ReadMore(absl::Span<const int32_t> tokens);

  const model::ModelSpec& spec_;
  const std::vector<model::Parameter> inventory_;
  const ParametersOf parameters_of_;
  const nn::RopeTables rope_;
  const int64_t window_;
  const int threads_;
  const int threads_of_one_token_;
  const std::vector<nn::SegmentRunner> one_token_;  // by block
  std::vector<nn::KeyValueCache> caches_;           // by block; those of embedding and head stay empty
  int64_t begin_ = 0;                               // of what was read within the text
  int64_t num_tokens_ = 0;                          // that were read
};

}  // namespace trainctl::trainer
