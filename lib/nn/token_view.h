// The token side of one micro-batch, as the operators take it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

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

// Owns on a device what a view on it borrows.
class DeviceTokens {
 public:
  // Copies `host`, a view of host memory, to the device. On the CPU it borrows what `host` borrows.
  DeviceTokens(const device::Device& device, const TokenView& host, const model::MicroBatchShape& shape);
  const TokenView& view() const { return view_; }

 private:
  at::Tensor storage_;
  TokenView view_;
};

}  // namespace trainctl::nn
