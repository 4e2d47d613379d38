#include "device/timing.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <stdexcept>
#include <string>

#include "device/aten.h"

namespace trainctl::device {

double PassSeconds(const Device& device, const std::function<void()>& pass) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  pass();
  if (const absl::Status status = device.Synchronize(); !status.ok())
    throw std::runtime_error(std::string(status.message()));
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

namespace {

constexpr size_t kTimes = 5;

// In ascending order.
std::array<double, kTimes> TimesOfPass(const Device& device, const std::function<void()>& pass) {
  constexpr int kMostPasses = 20;
  constexpr double kSeconds = 5e-3;
  const double first = PassSeconds(device, pass);
  const int passes = std::clamp(static_cast<int>(kSeconds / std::max(first, 1e-9)), 1, kMostPasses);
  std::array<double, kTimes> times;
  for (double& seconds : times) {
    seconds = PassSeconds(device, [&] {
      for (int k = 0; k < passes; ++k) pass();
    });
    seconds /= passes;
  }
  std::sort(times.begin(), times.end());
  return times;
}

}  // namespace

double BestPassSeconds(const Device& device, const std::function<void()>& pass) {
  PassSeconds(device, pass);
  return TimesOfPass(device, pass).front();
}

double SteadyPassSeconds(const Device& device, const std::function<void()>& pass) {
  constexpr double kWarmUpSeconds = 0.5;
  for (double seconds = 0; seconds < kWarmUpSeconds;) seconds += PassSeconds(device, pass);
  return TimesOfPass(device, pass)[kTimes / 2];
}

double CopyBytesPerSecond(const Device& device) {
  constexpr int64_t kLeastBytes = int64_t{16} << 20, kMostBytes = int64_t{1} << 30;
  for (int64_t bytes = kLeastBytes;; bytes *= 2) {
    const at::Tensor from = at::zeros({bytes}, device.Options(at::kByte));
    at::Tensor to = at::empty_like(from);
    const double seconds =
        BestPassSeconds(device, [&] { device.Copy(to.data_ptr(), from.data_ptr(), bytes); });
    if (seconds >= kLongPassSeconds || bytes >= kMostBytes) return 2 * static_cast<double>(bytes) / seconds;
  }
}

at::Tensor RandomRows(const Device& device, int64_t rows, int64_t columns, at::ScalarType dtype) {
  constexpr int64_t kDrawnRows = 512;
  const at::Tensor drawn = at::randn({std::min(rows, kDrawnRows), columns}, dtype);
  return drawn.repeat({(rows + kDrawnRows - 1) / kDrawnRows, 1})
      .narrow(0, 0, rows)
      .contiguous()
      .to(device.torch());
}

}  // namespace trainctl::device
