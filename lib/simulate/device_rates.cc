#include "simulate/device_rates.h"

#include <cmath>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "model/operators.h"
#include "simulate/calibration.h"
#include "simulate/device_cost.h"
#include "simulate/device_kernels.h"
#include "simulate/work_table.h"

namespace trainctl::simulate {
namespace {

// Of a step on a device: data, log, what the host does between two.
constexpr double kStepSeconds = 1e-3;

// What moves bytes and what starts kernels, whatever they compute.
void SetPasses(DType compute_dtype, double bytes_per_second, double launch_seconds, Rates& rates) {
  // Logits are read for their row's sum, and again where the gradient takes their place.
  const double logit_bytes = 3 * static_cast<double>(DTypeBytes(compute_dtype));
  const double byte_seconds = 1 / bytes_per_second;
  rates[Resource::kLogits] = logit_bytes * byte_seconds;
  rates[Resource::kMovedBytes] = byte_seconds;
  rates[Resource::kOptimizerElements] = AdamWBytes() * byte_seconds;
  rates[Resource::kOperators] = launch_seconds;
  rates[Resource::kSteps] = kStepSeconds;
}

Work WorkOf(const TimedProduct& timed) {
  const model::Product& p = timed.product;
  const auto bytes = static_cast<double>(DTypeBytes(p.dtype));
  Work work;
  work[Resource::kMatmulFlops] = 2 * p.rows * p.inner * p.columns;
  work[Resource::kOperandBytes] =
      (p.rows * p.inner + p.inner * p.columns) * bytes + p.rows * p.columns * p.result_bytes;
  work.products = {{p}};
  return work;
}

Work WorkOf(const TimedAttention& timed) {
  const model::AttentionKernel& k = timed.kernel;
  const double scores =
      k.tokens / k.seq_len * k.heads *
      static_cast<double>(model::ScoresComputed(std::llround(k.seq_len), std::llround(k.window)));
  Work work;
  work[k.backward ? Resource::kAttentionBackwardFlops : Resource::kAttentionFlops] =
      (k.backward ? 5 : 2) * 2 * scores * k.head_dim;
  work.attention = {{k}};
  return work;
}

// Seconds of the shapes that were timed; 0: none was.
double TimedSeconds(const MeasuredDevice& measured, FusedAttention fused) {
  double seconds = 0;
  for (const TimedAttention& timed : measured.attention) seconds += timed.fused == fused ? timed.seconds : 0;
  return seconds;
}

// The geometric mean of what was measured over what the catalogue gives; 1 of nothing.
class Ratio {
 public:
  void Add(double measured_s, double priced_s) {
    if (priced_s <= 0) return;
    sum_ += std::log(measured_s / priced_s);
    ++count_;
  }
  double value() const { return count_ == 0 ? 1 : std::exp(sum_ / count_); }

 private:
  double sum_ = 0;
  int count_ = 0;
};

ShapeScales ScalesOf(const MeasuredDevice& measured, const Rates& rates, DType compute_dtype) {
  const auto priced = [&](const Work& work) {
    return DeviceSeconds(*rates.machine, rates.attention, ShapeScales(), work);
  };
  Ratio products, attention, attention_backward;
  for (const TimedProduct& timed : measured.products) {
    if (timed.product.dtype == compute_dtype) products.Add(timed.seconds, priced(WorkOf(timed)));
  }
  for (const TimedAttention& timed : measured.attention) {
    if (timed.fused != rates.attention) continue;
    (timed.kernel.backward ? attention_backward : attention).Add(timed.seconds, priced(WorkOf(timed)));
  }
  return {products.value(), attention.value(), attention_backward.value()};
}

std::vector<Probe> ProbesOf(const MeasuredDevice& measured, DType compute_dtype, FusedAttention attention) {
  std::vector<Probe> probes;
  const auto add = [&](const char* name, const Work& work, double seconds) {
    probes.push_back({.work = {{name, work}}, .seconds = {{name, seconds}}, .step_seconds = seconds});
  };
  for (const TimedProduct& timed : measured.products) {
    if (timed.product.dtype == compute_dtype) add("product", WorkOf(timed), timed.seconds);
  }
  for (const TimedAttention& timed : measured.attention) {
    // It is of bf16 alone.
    if (timed.fused == attention && compute_dtype == DType::kBF16) {
      add("attention", WorkOf(timed), timed.seconds);
    }
  }
  return probes;
}

}  // namespace

FusedAttention FasterAttention(const MeasuredDevice& measured) {
  const double vendor = TimedSeconds(measured, FusedAttention::kVendor);
  const double flash = TimedSeconds(measured, FusedAttention::kFlash2);
  return vendor > 0 && (flash == 0 || vendor <= flash) ? FusedAttention::kVendor : FusedAttention::kFlash2;
}

Rates DeviceRates(std::shared_ptr<const cluster::Machine> machine, DType compute_dtype,
                  FusedAttention attention, const MeasuredDevice* measured) {
  Rates rates;
  rates.machine = std::move(machine);
  rates.attention = attention;
  if (measured == nullptr) {
    SetPasses(compute_dtype, BytesPerSecond(*rates.machine->device), kKernelGapSeconds, rates);
    return rates;
  }
  SetPasses(compute_dtype, measured->bytes_per_second, measured->launch_seconds, rates);
  rates.scales = ScalesOf(*measured, rates, compute_dtype);
  rates.measured = true;
  return rates;
}

Rates UnknownDeviceRates(DType compute_dtype, FusedAttention attention, const MeasuredDevice* measured) {
  const double flops = compute_dtype == DType::kBF16 ? 100e12 : 50e12;
  constexpr double kBytesPerSecond = 1e12, kSentBytesPerSecond = 50e9;
  const double bytes_per_second = measured == nullptr ? kBytesPerSecond : measured->bytes_per_second;
  Rates rates;
  SetPasses(compute_dtype, bytes_per_second,
            measured == nullptr ? kKernelGapSeconds : measured->launch_seconds, rates);
  rates[Resource::kMatmulFlops] = 1 / flops;
  rates[Resource::kAttentionFlops] = 2 / flops;  // flash attention: about half of a product's rate
  rates[Resource::kAttentionBackwardFlops] = 2.5 / flops;
  rates[Resource::kOperandBytes] = 1 / bytes_per_second;
  rates[Resource::kSentBytes] = 1 / kSentBytesPerSecond;
  rates[Resource::kCollectives] = rates[Resource::kTensorExchanges] = 2e-5;
  if (measured == nullptr) return rates;
  return FitRates(ProbesOf(*measured, compute_dtype, attention), rates);
}

}  // namespace trainctl::simulate
