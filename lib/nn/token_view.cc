#include "nn/token_view.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/status.h"
#include "device/aten.h"

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

// Where the arrays of one micro-batch lie among those of all, and their bytes.
class Packer {
 public:
  Packer(char* bytes, const char* target) : bytes_(bytes), target_(target) {}

  // Appends what `pointer` borrows, which then points to where it will be on the device. Null stays null.
  template <typename T>
  void Put(const T*& pointer, int64_t count) {
    if (pointer == nullptr) return;
    const size_t size = static_cast<size_t>(count) * sizeof(T);
    at_ = (at_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    std::memcpy(bytes_ + at_, pointer, size);
    pointer = reinterpret_cast<const T*>(target_ + at_);
    at_ += size;
  }

 private:
  char* const bytes_;
  const char* const target_;
  size_t at_ = 0;
};

}  // namespace

bool AreWholeSequences(absl::Span<const TokenView> views, const model::MicroBatchShape& shape) {
  return std::all_of(views.begin(), views.end(), [&](const TokenView& view) {
    return std::cmp_equal(DocumentOffsets(view.document, shape).size(), shape.batch + 1);
  });
}

DeviceTokens::DeviceTokens(const device::Device& device, absl::Span<const TokenView> host,
                           const model::MicroBatchShape& shape) {
  if (device.is_cpu()) {
    views_.assign(host.begin(), host.end());
  } else {
    Replace(device, host, shape);
  }
}

void DeviceTokens::Replace(const device::Device& device, absl::Span<const TokenView> host,
                           const model::MicroBatchShape& shape) {
  views_.assign(host.begin(), host.end());
  const int64_t n = shape.tokens();
  std::vector<std::vector<int32_t>> offsets;
  int64_t bytes = 0;
  for (TokenView& view : views_) {
    const std::vector<int32_t>& of_view = offsets.emplace_back(DocumentOffsets(view.document, shape));
    for (size_t i = 1; i < of_view.size(); ++i)
      view.longest_document = std::max<int64_t>(view.longest_document, of_view[i] - of_view[i - 1]);
    const auto words = 3 * n + static_cast<int64_t>(of_view.size());
    bytes += words * kWord + (n + kWord - 1) / kWord * kWord;
  }
  const at::Tensor here = device.PinnedBytes(bytes);
  if (!storage_.defined()) storage_ = at::empty({bytes}, device.Options(at::kByte));
  TRAINCTL_CHECK(storage_.numel() == bytes);
  char* const target = static_cast<char*>(storage_.data_ptr());
  Packer packer(static_cast<char*>(here.data_ptr()), target);
  for (size_t i = 0; i < views_.size(); ++i) {
    TokenView& view = views_[i];
    const int32_t* begins = offsets[i].data();
    const auto num_offsets = static_cast<int64_t>(offsets[i].size());
    packer.Put(view.tokens, n);
    packer.Put(view.targets, n);
    packer.Put(view.positions, n);
    packer.Put(begins, num_offsets);
    packer.Put(view.loss_mask, n);
    view.document_offsets = device.View(const_cast<int32_t*>(begins), {num_offsets}, at::kInt);
  }
  device.CopyPinnedToDevice(target, here);
}

}  // namespace trainctl::nn
