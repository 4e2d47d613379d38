#include <c10/util/Exception.h>

#include <cmath>
#include <exception>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "base/status.h"
#include "device/aten.h"
#include "device/error_text.h"
#include "device/timing.h"
#include "kernels/kernels.h"
#include "nn/time_attention.h"
#include "simulate/measured_device.h"
#include "trainer/run_worker.h"

namespace trainctl::trainer {
namespace {

using simulate::FusedAttention;
using simulate::MeasuredDevice;

double MeasureLaunchSeconds(const device::Device& device) {
  constexpr int kLaunches = 1000;
  const at::Tensor x = at::zeros({1}, device.Options(at::kFloat));
  at::Tensor y = at::zeros({1}, device.Options(at::kFloat));
  return device::BestPassSeconds(device,
                                 [&] {
                                   for (int i = 0; i < kLaunches; ++i)
                                     device.kernels().f32.add(y.data_ptr(), x.data_ptr(), 1);
                                 }) /
         kLaunches;
}

// y = x W^T, and the gradient of W that is added to what is there: the products of a linear operator, in the
// calls of lib/nn.
class LinearProducts {
 public:
  LinearProducts(const device::Device& device, DType dtype, int64_t rows, int64_t in, int64_t out)
      : dtype_(dtype), rows_(rows), in_(in), out_(out) {
    const at::ScalarType type = is_half() ? at::kBFloat16 : at::kFloat;
    x_ = device::RandomRows(device, rows, in, type);
    w_ = device::RandomRows(device, out, in, type);
    y_ = device::RandomRows(device, rows, out, type);
    gradient_ = at::zeros({out, in}, device.Options(at::kFloat));
  }

  void Forward() { at::mm_out(y_, x_, w_.t()); }
  void Backward() {
    if (is_half()) {
      at::addmm_out(gradient_, gradient_, y_.t(), x_, at::kFloat);
    } else {
      gradient_.addmm_(y_.t(), x_);
    }
  }
  simulate::TimedProduct TimedForward(double seconds) const {
    return {Product(rows_, in_, out_, static_cast<double>(DTypeBytes(dtype_))), seconds};
  }
  simulate::TimedProduct TimedBackward(double seconds) const {
    constexpr double kReadAndWritten = 2 * sizeof(float);
    return {Product(out_, rows_, in_, kReadAndWritten), seconds};
  }

 private:
  bool is_half() const { return dtype_ == DType::kBF16; }
  model::Product Product(int64_t left, int64_t inner, int64_t right, double result_bytes) const {
    return {dtype_, static_cast<double>(left), static_cast<double>(inner), static_cast<double>(right),
            result_bytes};
  }

  const DType dtype_;
  const int64_t rows_, in_, out_;
  at::Tensor x_, w_, y_, gradient_;
};

// Of that size, or of a part of it that is long enough.
void MeasureProducts(const device::Device& device, DType dtype, int64_t rows, int64_t in, int64_t out,
                     MeasuredDevice& measured) {
  for (int64_t share = 16; share >= 1; share /= 2) {
    LinearProducts products(device, dtype, rows / share, in / share, out / share);
    const auto forward = [&] { products.Forward(); };
    if (share > 1 && device::BestPassSeconds(device, forward) < device::kLongPassSeconds) continue;
    const double backward_s = device::SteadyPassSeconds(device, [&] { products.Backward(); });
    measured.products.push_back(products.TimedForward(device::SteadyPassSeconds(device, forward)));
    measured.products.push_back(products.TimedBackward(backward_s));
    return;
  }
}

void MeasureAttention(const device::Device& device, int64_t head_dim, MeasuredDevice& measured) {
  constexpr int64_t kLeastTokens = 256, kMostTokens = 8192;
  nn::AttentionShape shape{.batch = 1, .seq_len = 0, .heads = 32, .kv_heads = 8, .head_dim = head_dim};
  std::optional<nn::AttentionSeconds> seconds;
  for (shape.seq_len = kLeastTokens;; shape.seq_len *= 2) {
    seconds = nn::TimeAttention(device, shape);
    if (!seconds.has_value()) return;
    if (seconds->flash.both() >= device::kLongPassSeconds || shape.seq_len == kMostTokens) break;
  }
  const auto add = [&](FusedAttention fused, const nn::ForwardBackward& of_kernel) {
    for (bool backward : {false, true}) {
      const double pass_s = backward ? of_kernel.backward : of_kernel.forward;
      if (!std::isfinite(pass_s)) continue;
      const auto tokens = static_cast<double>(shape.seq_len);
      measured.attention.push_back({fused,
                                    {.tokens = tokens,
                                     .seq_len = tokens,
                                     .heads = static_cast<double>(shape.heads),
                                     .head_dim = static_cast<double>(head_dim),
                                     .backward = backward},
                                    pass_s});
    }
  };
  add(FusedAttention::kFlash2, seconds->flash);
  add(FusedAttention::kVendor, seconds->cudnn);
}

MeasuredDevice Measure(const device::Device& device) {
  MeasuredDevice measured{.name = device.description()};
  measured.bytes_per_second = device::CopyBytesPerSecond(device);
  measured.launch_seconds = MeasureLaunchSeconds(device);
  // Of models of 1 and 8 B parameters, and a square one.
  MeasureProducts(device, DType::kBF16, 8192, 8192, 8192, measured);
  MeasureProducts(device, DType::kBF16, 8192, 4096, 14336, measured);
  MeasureProducts(device, DType::kBF16, 8192, 14336, 4096, measured);
  MeasureProducts(device, DType::kBF16, 8192, 2048, 11264, measured);
  MeasureProducts(device, DType::kF32, 4096, 4096, 4096, measured);
  MeasureProducts(device, DType::kF32, 4096, 2048, 11264, measured);
  for (int64_t head_dim : {64, 128}) MeasureAttention(device, head_dim, measured);
  return measured;
}

}  // namespace

absl::StatusOr<std::string> MeasureDevice(const std::string& plugin_path, int ordinal) {
  try {
    TRAINCTL_ASSIGN_OR_RETURN(const auto device, device::Device::Open(plugin_path, {.ordinal = ordinal}));
    device->UseNewStream();
    return FormatJson(simulate::ToJson(Measure(*device)));
  } catch (const c10::OutOfMemoryError& error) {
    return EnvironmentError(device::ErrorText(error));
  } catch (const std::exception& error) {
    return WorkerError(device::ErrorText(error));
  }
}

}  // namespace trainctl::trainer
