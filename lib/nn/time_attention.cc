#include "nn/time_attention.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <limits>
#include <vector>

#include "device/aten.h"
#include "device/timing.h"

namespace trainctl::nn {
namespace {

// One that makes plans and takes memory, and one more for the clock to rise.
constexpr int kWarmUpPasses = 2, kTimedPasses = 3;

using Pass = std::function<void()>;

// The passes of one kernel.
struct Kernel {
  Pass forward, backward;
};

ForwardBackward Seconds(const device::Device& device, const Kernel& kernel) {
  const double forward = device::PassSeconds(device, kernel.forward);
  return {forward, device::PassSeconds(device, kernel.backward)};
}

// Whether there is a kernel. Lack of memory says nothing of that.
bool Runs(const device::Device& device, const Kernel& kernel) {
  try {
    for (int i = 0; i < kWarmUpPasses; ++i) Seconds(device, kernel);
    return true;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception&) {
    return false;
  }
}

void KeepLess(const ForwardBackward& seconds, ForwardBackward& best) {
  best = {std::min(best.forward, seconds.forward), std::min(best.backward, seconds.backward)};
}

}  // namespace

std::optional<AttentionSeconds> TimeAttention(const device::Device& device, const AttentionShape& shape) {
  const int64_t n = shape.batch * shape.seq_len, width = shape.heads * shape.head_dim;
  const int64_t fused = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
  const at::Tensor qkv = device::RandomRows(device, n, fused, at::kBFloat16);
  const at::Tensor dout = device::RandomRows(device, n, width, at::kBFloat16);
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
  const Kernel cudnn = {[&] { CudnnForward(shape, qkv, of_cudnn.out, of_cudnn.lse); },
                        [&] { CudnnBackward(shape, qkv, of_cudnn.out, of_cudnn.lse, dout); }};
  const Kernel flash = {[&] { FlashForward(shape, qkv, view, of_flash.out, of_flash.lse); },
                        [&] { FlashBackward(shape, qkv, view, of_flash.out, of_flash.lse, dout); }};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool has_cudnn = Runs(device, cudnn);
  for (int i = 0; i < kWarmUpPasses; ++i) Seconds(device, flash);
  AttentionSeconds best{{kInfinity, kInfinity}, {kInfinity, kInfinity}};
  for (int i = 0; i < kTimedPasses; ++i) {
    if (has_cudnn) KeepLess(Seconds(device, cudnn), best.cudnn);
    KeepLess(Seconds(device, flash), best.flash);
  }
  return best;
}

void UseCudnnAttention(bool use) { at::globalContext().setSDPUseCuDNN(use); }

}  // namespace trainctl::nn
