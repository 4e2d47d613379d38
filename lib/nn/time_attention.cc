#include "nn/time_attention.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <limits>
#include <stdexcept>
#include <vector>

namespace trainctl::nn {
namespace {

// One that makes plans and takes memory, and one more for the clock to rise.
constexpr int kWarmUpPasses = 2, kTimedPasses = 3;

using Pass = std::function<void()>;

double Seconds(const device::Device& device, const Pass& pass) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  pass();
  if (const absl::Status status = device.Synchronize(); !status.ok())
    throw std::runtime_error(std::string(status.message()));
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Whether there is a kernel. Lack of memory says nothing of that.
bool Runs(const device::Device& device, const Pass& pass) {
  try {
    for (int i = 0; i < kWarmUpPasses; ++i) Seconds(device, pass);
    return true;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception&) {
    return false;
  }
}

// Of few rows, repeated: drawing them takes the host's time.
at::Tensor Random(const device::Device& device, int64_t rows, int64_t columns) {
  constexpr int64_t kDrawnRows = 512;
  const at::Tensor drawn = at::randn({std::min(rows, kDrawnRows), columns}, at::kBFloat16);
  return drawn.repeat({(rows + kDrawnRows - 1) / kDrawnRows, 1})
      .narrow(0, 0, rows)
      .contiguous()
      .to(device.torch());
}

}  // namespace

std::optional<AttentionSeconds> TimeAttention(const device::Device& device, const AttentionShape& shape) {
  const int64_t n = shape.batch * shape.seq_len, width = shape.heads * shape.head_dim;
  const int64_t fused = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
  const at::Tensor qkv = Random(device, n, fused), dout = Random(device, n, width);
  std::vector<int32_t> offsets;
  for (int64_t i = 0; i <= shape.batch; ++i) offsets.push_back(static_cast<int32_t>(i * shape.seq_len));
  TokenView view;
  view.document_offsets = at::tensor(offsets, at::kInt).to(device.torch());
  view.longest_document = shape.seq_len;
  if (!CudnnServes(shape, qkv, view)) return std::nullopt;

  // Of each kernel its own: either puts what it returns in their places.
  struct Results {
    at::Tensor out, lse;
  };
  const auto make_results = [&] {
    return Results{at::empty_like(dout), at::empty({shape.heads, n}, device.Options(at::kFloat))};
  };
  Results of_cudnn = make_results(), of_flash = make_results();
  const Pass cudnn = [&] {
    CudnnForward(shape, qkv, of_cudnn.out, of_cudnn.lse);
    CudnnBackward(shape, qkv, of_cudnn.out, of_cudnn.lse, dout);
  };
  const Pass flash = [&] {
    FlashForward(shape, qkv, view, of_flash.out, of_flash.lse);
    FlashBackward(shape, qkv, view, of_flash.out, of_flash.lse, dout);
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool has_cudnn = Runs(device, cudnn);
  for (int i = 0; i < kWarmUpPasses; ++i) Seconds(device, flash);
  AttentionSeconds best{kInfinity, kInfinity};
  for (int i = 0; i < kTimedPasses; ++i) {
    if (has_cudnn) best.cudnn = std::min(best.cudnn, Seconds(device, cudnn));
    best.flash = std::min(best.flash, Seconds(device, flash));
  }
  return best;
}

void UseCudnnAttention(bool use) { at::globalContext().setSDPUseCuDNN(use); }

}  // namespace trainctl::nn
