// The tokens of micro-batches and their metadata, as operators read them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "device/device.h"
#include "model/segment.h"

namespace trainctl::nn {

// Borrowed arrays, each [batch, seq_len]. In the views that operators receive, `document` is in host memory
// and the others are in device memory.
struct TokenView {
  const int32_t* tokens = nullptr;
  const int32_t* targets = nullptr;
  const int32_t* positions = nullptr;
  const int32_t* document = nullptr;
  const uint8_t* loss_mask = nullptr;
  // The offset of each document among all tokens, followed by the number of tokens: int32 [documents + 1], in
  // device memory. Undefined on the CPU, where attention cuts by `document`.
  at::Tensor document_offsets = {};
  int64_t longest_document = 0;  // tokens; set together with document_offsets
};

// Whether each sequence is a single document. The arrays of `views` are in host memory.
bool AreWholeSequences(absl::Span<const TokenView> views, const model::MicroBatchShape& shape);

// Owns the device memory to which its views refer.
class DeviceTokens {
 public:
  DeviceTokens() = default;
  // Queues a copy of `host` to the device on the calling thread's stream. The views are in host memory and
  // have the same shape; that memory may be reused immediately. On the CPU nothing is copied, and the views
  // refer to the same memory as `host`.
  DeviceTokens(const device::Device& device, absl::Span<const TokenView> host,
               const model::MicroBatchShape& shape);
  const TokenView& view(size_t micro_batch) const { return views_[micro_batch]; }

  // Copies other tokens to the same addresses of a device, so that work that holds these pointers reads the
  // new tokens. In both the old and the new tokens each sequence must be a single document, and there must be
  // equally many views.
  void Replace(const device::Device& device, absl::Span<const TokenView> host,
               const model::MicroBatchShape& shape);

 private:
  at::Tensor storage_;
  std::vector<TokenView> views_;
};

}  // namespace trainctl::nn
