// The token side of micro-batches, as the operators take it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "device/device.h"
#include "model/segment.h"

namespace trainctl::nn {

// Borrowed, each [batch, seq_len]. `document` is the host's; the others are the device's.
struct TokenView {
  const int32_t* tokens = nullptr;
  const int32_t* targets = nullptr;
  const int32_t* positions = nullptr;
  const int32_t* document = nullptr;
  const uint8_t* loss_mask = nullptr;
  // Where documents begin among all tokens, and where the last one ends: int32 [documents + 1], on the
  // device. Undefined on the CPU, whose attention cuts by `document`.
  at::Tensor document_offsets = {};
  int64_t longest_document = 0;  // tokens
};

// Whether each sequence is one document.
bool AreWholeSequences(absl::Span<const TokenView> views, const model::MicroBatchShape& shape);

// Owns on a device what views on it borrow.
class DeviceTokens {
 public:
  DeviceTokens() = default;
  // Copies `host`, views of host memory of one shape that may be reused at once, to the device, in its turn
  // on the stream. On the CPU it borrows what `host` borrows.
  DeviceTokens(const device::Device& device, absl::Span<const TokenView> host,
               const model::MicroBatchShape& shape);
  const TokenView& view(size_t micro_batch) const { return views_[micro_batch]; }

  // Copies others to where these are, on a device: work that holds these pointers then sees those. Of both
  // each sequence is one document, and there are as many.
  void Replace(const device::Device& device, absl::Span<const TokenView> host,
               const model::MicroBatchShape& shape);

 private:
  at::Tensor storage_;
  std::vector<TokenView> views_;
};

}  // namespace trainctl::nn
