#include "simulate/effective_time.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace trainctl::simulate {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double AtLeastZero(double value) { return value > 0 ? value : 0; }

}  // namespace

double BestCheckpointInterval(double stall_seconds, double mean_seconds) {
  const double stall = AtLeastZero(stall_seconds);
  if (!(mean_seconds > 0)) return 0;
  if (std::isinf(mean_seconds)) return kInfinity;
  if (stall >= 2 * mean_seconds) return mean_seconds;
  const double ratio = stall / (2 * mean_seconds);
  return std::sqrt(2 * stall * mean_seconds) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - stall;
}

EffectiveTime PriceEffectiveTime(double step_seconds, int64_t gpus, const Reliability& r) {
  const double step = AtLeastZero(step_seconds) + AtLeastZero(r.data_stall_seconds);
  const double stall = AtLeastZero(r.checkpoint_stall_seconds);
  const double rate =
      AtLeastZero(r.failures_per_gpu_hour) / 3600 * static_cast<double>(std::max<int64_t>(0, gpus));
  EffectiveTime result;
  result.mean_seconds_between_failures = rate > 0 ? 1 / rate : kInfinity;
  const double mean = result.mean_seconds_between_failures;
  const bool given = r.checkpoint_interval_seconds > 0;
  double interval = given ? r.checkpoint_interval_seconds : BestCheckpointInterval(stall, mean);
  // Nothing is saved within a step.
  interval = std::max(interval, step);
  result.checkpoint_interval_seconds = interval;
  double wall = 1;  // per second of work
  if (std::isinf(mean)) {
    if (std::isfinite(interval) && interval > 0) wall = (interval + stall) / interval;
  } else if (interval > 0) {
    wall = std::exp(AtLeastZero(r.restart_seconds) / mean) * mean * std::expm1((interval + stall) / mean) /
           interval;
  }
  result.step_seconds = step * wall;
  if (!std::isfinite(result.step_seconds)) result.step_seconds = kInfinity;
  const double work = AtLeastZero(step_seconds);
  result.share_of_time = result.step_seconds > 0 ? work / result.step_seconds : 1;
  return result;
}

}  // namespace trainctl::simulate
