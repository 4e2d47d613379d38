// Computes the logits of the next token of a growing text. Caches the keys and values of the tokens that it
// has read, so that each call processes only the new tokens. Uses the blocks of training
// (nn/segment_runner.h), in fp32 on the CPU. Sets ATen's number of threads. Not thread-safe; ATen's
// exceptions are not caught.
//
//   ContextReader reader(spec, parameters_of, /*window=*/2048, threads);
//   while (...) {
//     TRAINCTL_ASSIGN_OR_RETURN(const at::Tensor logits, reader.Read(text));
//     text.push_back(Sample(logits));
//   }
//
// The window is the maximum number of tokens that are attended to together; a text may be longer. When the
// window is full, its older half is dropped, and the newer half is read again as the beginning of a text.
// With LongRoPE (model/rope_scaling.h), all tokens are read again when there are more of them than the
// original context length, because all keys then have other positions. transformers does the same.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/architecture.h"
#include "model/graph.h"
#include "model/parameters.h"
#include "nn/bound_parameters.h"
#include "nn/key_value_cache.h"
#include "nn/rope_tables.h"
#include "nn/segment_runner.h"

namespace trainctl::trainer {

class ContextReader {
 public:
  // Returns the parameters of a block in fp32. They must stay valid until the next call.
  using ParametersOf = std::function<absl::StatusOr<const nn::BoundParameters*>(int block)>;
  // Borrows `spec`. `window` is in tokens.
  ContextReader(const model::Architecture& spec, ParametersOf parameters_of, int64_t window, int threads);

  // Returns the logits of the token after `text`, with shape [1, vocab]. `text` must be the text of the last
  // call followed by at least one more token. Returns the errors of ParametersOf.
  absl::StatusOr<at::Tensor> Read(absl::Span<const int32_t> text);

  // Returns the number of tokens that are kept when the window is full.
  static int64_t KeptOf(int64_t window) { return window > 1 ? window / 2 : 1; }

 private:
  // Returns a runner for each kind of segment in the graph.
  std::vector<nn::SegmentRunner> MakeRunners(const model::Graph& graph) const;
  std::shared_ptr<const model::Graph> GraphOf(int64_t num_tokens) const;
  // Number of positions in the tables for a text of `length` tokens.
  int64_t NumPositions(int64_t length) const;
  // Forgets all tokens. The next one is at index `begin` of the text.
  void Restart(int64_t begin);
  absl::StatusOr<at::Tensor> ReadMore(absl::Span<const int32_t> tokens);

  const model::Architecture& spec_;
  const std::vector<model::Parameter> inventory_;
  const ParametersOf parameters_of_;
  const int64_t window_;
  int64_t num_positions_;
  std::vector<nn::RopeTables> rope_;
  const int threads_;
  const int threads_of_one_token_;
  const std::shared_ptr<const model::Graph> graph_;  // graph for one token
  std::vector<nn::SegmentRunner> one_token_;         // runners for one token, by kind
  std::vector<nn::KeyValueCache> caches_;  // one per block; those of the embedding and head stay empty
  int64_t begin_ = 0;                      // index in the text of the first cached token
  int64_t num_tokens_ = 0;                 // number of cached tokens
};

}  // namespace trainctl::trainer
