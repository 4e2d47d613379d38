#include "nn/time_attention.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <limits>
#include <vector>

namespace trainctl::nn {
namespace {

constexpr int kTimedPasses = 3;  // after one that makes plans and takes memory

double Seconds(const device::Device& device, const std::function<void()>& pass) {
  using Clock = std::chrono::steady_clock;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= kTimedPasses; ++i) {
    const Clock::time_point begin = Clock::now();
    pass();
    if (const absl::Status status = device.Synchronize(); !status.ok())
      throw std::runtime_error(std::string(status.message()));
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (i > 0) best = std::min(best, seconds);
  }
  return best;
}

}  // namespace

std::optional<AttentionSeconds> TimeAttention(const device::Device& device, const AttentionShape& shape) {
  const int64_t n = shape.batch * shape.seq_len, width = shape.heads * shape.head_dim;
  const int64_t fused = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
  const auto random = [&](int64_t columns) {
    return at::randn({n, columns}, at::kBFloat16).to(device.torch());
  };
  const at::Tensor qkv = random(fused), dout = random(width);
  at::Tensor out = at::empty_like(dout);
  at::Tensor lse = at::empty({shape.heads, n}, device.Options(at::kFloat));
  std::vector<int32_t> offsets;
  for (int64_t i = 0; i <= shape.batch; ++i) offsets.push_back(static_cast<int32_t>(i * shape.seq_len));
  TokenView view;
  view.document_offsets = at::tensor(offsets, at::kInt).to(device.torch());
  view.longest_document = shape.seq_len;
  if (!CudnnServes(shape, qkv, view)) return std::nullopt;

  AttentionSeconds seconds;
  try {
    seconds.cudnn = Seconds(device, [&] {
      CudnnForward(shape, qkv, out, lse);
      CudnnBackward(shape, qkv, out, lse, dout);
    });
  } catch (const std::exception&) {
    seconds.cudnn = std::numeric_limits<double>::infinity();
  }
  out = at::empty_like(dout);
  lse = at::empty({shape.heads, n}, device.Options(at::kFloat));
  seconds.flash = Seconds(device, [&] {
    FlashForward(shape, qkv, view, out, lse);
    FlashBackward(shape, qkv, view, out, lse, dout);
  });
  return seconds;
}

void UseCudnnAttention(bool use) { at::globalContext().setSDPUseCuDNN(use); }

}  // namespace trainctl::nn
