#include "nn/token_view.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

namespace trainctl::nn {
namespace {

constexpr int64_t kWord = sizeof(int32_t);

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
  const std::vector<int32_t> offsets = DocumentOffsets(host.document, shape);
  const int64_t num_offsets = static_cast<int64_t>(offsets.size());
  for (size_t i = 1; i < offsets.size(); ++i)
    view_.longest_document = std::max<int64_t>(view_.longest_document, offsets[i] - offsets[i - 1]);
  // One copy for all: each waits for the device.
  std::vector<char> bytes(static_cast<size_t>((3 * n + num_offsets) * kWord + n));
  storage_ = at::empty({static_cast<int64_t>(bytes.size())}, device.Options(at::kByte));
  char* const target = static_cast<char*>(storage_.data_ptr());
  int64_t at = 0;
  const auto put = [&](const auto*& pointer, int64_t count) {
    const int64_t size = count * static_cast<int64_t>(sizeof(*pointer));
    if (pointer != nullptr) {
      std::memcpy(&bytes[static_cast<size_t>(at)], pointer, static_cast<size_t>(size));
      pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(target + at);
    }
    at += size;
  };
  put(view_.tokens, n);
  put(view_.targets, n);
  put(view_.positions, n);
  const int32_t* begins = offsets.data();
  put(begins, num_offsets);
  put(view_.loss_mask, n);
  device.CopyToDevice(target, bytes.data(), at);
  view_.document_offsets = device.View(const_cast<int32_t*>(begins), {num_offsets}, at::kInt);
}

}  // namespace trainctl::nn
