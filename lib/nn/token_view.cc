#include "nn/token_view.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

namespace trainctl::nn {
namespace {

std::vector<int32_t> DocumentOffsets(const int32_t* document, const model::MicroBatchShape& shape) {
  std::vector<int32_t> offsets = {0};
  for (int64_t i = 1; i < shape.tokens(); ++i) {
    const bool new_sequence = i % shape.seq_len == 0;
    if (new_sequence || document[i] != document[i - 1]) offsets.push_back(static_cast<int32_t>(i));
  }
  offsets.push_back(static_cast<int32_t>(shape.tokens()));
  return offsets;
}

}  // namespace

DeviceTokens::DeviceTokens(const device::Device& device, const TokenView& host,
                           const model::MicroBatchShape& shape)
    : view_(host) {
  if (device.is_cpu()) return;
  const int64_t n = shape.tokens();
  constexpr int64_t kWord = sizeof(int32_t);
  storage_ = at::empty({3 * n * kWord + n}, device.Options(at::kByte));
  char* at = static_cast<char*>(storage_.data_ptr());
  const auto put = [&](const auto*& pointer, int64_t bytes) {
    if (pointer != nullptr) {
      device.CopyToDevice(at, pointer, bytes);
      pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(at);
    }
    at += bytes;
  };
  put(view_.tokens, n * kWord);
  put(view_.targets, n * kWord);
  put(view_.positions, n * kWord);
  put(view_.loss_mask, n);
  const std::vector<int32_t> offsets = DocumentOffsets(host.document, shape);
  for (size_t i = 1; i < offsets.size(); ++i)
    view_.longest_document = std::max<int64_t>(view_.longest_document, offsets[i] - offsets[i - 1]);
  view_.document_offsets = at::empty({static_cast<int64_t>(offsets.size())}, device.Options(at::kInt));
  device.CopyToDevice(view_.document_offsets.data_ptr(), offsets.data(),
                      static_cast<int64_t>(offsets.size()) * kWord);
}

}  // namespace trainctl::nn
