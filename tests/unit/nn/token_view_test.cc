#include "nn/token_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "device/aten.h"

namespace trainctl::nn {
namespace {

const device::Device& TestDevice() {
  static const device::Device& device = []() -> const device::Device& {
    auto opened =
        device::Device::Open(absl::StrCat(TRAINCTL_BIN_DIR, "/test_device.so"), {.deterministic = true});
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *opened->release();
  }();
  return device;
}

template <typename T>
std::vector<T> OnHost(const T* there, size_t count) {
  std::vector<T> here(count);
  TestDevice().CopyToHost(here.data(), there, static_cast<int64_t>(count * sizeof(T)));
  return here;
}

// Micro-batches of so few tokens that masks end anywhere: what arrives is what was given, and words lie where
// words may.
TEST(DeviceTokens, EachMicroBatchArrivesWhole) {
  constexpr int kMicroBatches = 3;
  for (const int64_t n : {1, 5, 8}) {
    const auto count = static_cast<size_t>(n);
    std::vector<std::vector<int32_t>> words(4 * kMicroBatches, std::vector<int32_t>(count));
    std::vector<std::vector<uint8_t>> masks;
    std::vector<TokenView> host;
    for (size_t m = 0; m < kMicroBatches; ++m) {
      for (size_t k = 0; k < 3; ++k)
        std::iota(words[4 * m + k].begin(), words[4 * m + k].end(), 100 * m + 10 * k);
      for (size_t i = 0; i < count; ++i) words[4 * m + 3][i] = i < 2 + m ? 0 : 1;  // documents
      masks.push_back(std::vector<uint8_t>(count, static_cast<uint8_t>(m + 1)));
      host.push_back({.tokens = words[4 * m].data(),
                      .targets = words[4 * m + 1].data(),
                      .positions = words[4 * m + 2].data(),
                      .document = words[4 * m + 3].data(),
                      .loss_mask = masks[m].data()});
    }
    const DeviceTokens tokens(TestDevice(), host, {1, n});
    for (size_t m = 0; m < kMicroBatches; ++m) {
      const TokenView& view = tokens.view(m);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(view.tokens) % alignof(int32_t), 0u);
      EXPECT_EQ(OnHost(view.tokens, count), words[4 * m]);
      EXPECT_EQ(OnHost(view.targets, count), words[4 * m + 1]);
      EXPECT_EQ(OnHost(view.positions, count), words[4 * m + 2]);
      EXPECT_EQ(OnHost(view.loss_mask, count), masks[m]);
      const auto first = static_cast<int32_t>(2 + m);
      const bool is_cut = n > first;
      EXPECT_EQ(OnHost(view.document_offsets.data_ptr<int32_t>(), is_cut ? 3 : 2),
                is_cut ? std::vector<int32_t>({0, first, static_cast<int32_t>(n)})
                       : std::vector<int32_t>({0, static_cast<int32_t>(n)}));
      EXPECT_EQ(view.longest_document, is_cut ? std::max<int64_t>(first, n - first) : n);
      EXPECT_EQ(view.document, host[m].document);
    }
  }
}

TEST(DeviceTokens, WhatIsNotThereStaysAway) {
  const std::vector<int32_t> document(4);
  const TokenView host{.document = document.data()};
  const DeviceTokens tokens(TestDevice(), {&host, 1}, {1, 4});
  EXPECT_EQ(tokens.view(0).tokens, nullptr);
  EXPECT_EQ(tokens.view(0).loss_mask, nullptr);
  EXPECT_EQ(tokens.view(0).longest_document, 4);
}

TEST(DeviceTokens, OnTheCpuTheyAreBorrowed) {
  const std::vector<int32_t> words(4);
  const TokenView host{.tokens = words.data()};
  const DeviceTokens tokens(device::Device::Cpu(), {&host, 1}, {1, 4});
  EXPECT_EQ(tokens.view(0).tokens, words.data());
}

}  // namespace
}  // namespace trainctl::nn
