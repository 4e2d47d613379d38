#include "telemetry/step_pace.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace trainctl::telemetry {
namespace {

constexpr size_t kStepsOfSpeed = 20;
constexpr size_t kStepsOfPace = 200;

std::optional<double> Median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <typename ValueOf>
std::optional<double> RecentMedian(const std::deque<DoneStep>& steps, const ValueOf& value_of) {
  std::vector<double> values;
  for (size_t i = steps.size() - std::min(steps.size(), kStepsOfSpeed); i < steps.size(); ++i) {
    const std::optional<double> value = value_of(steps[i]);
    if (value.has_value() && std::isfinite(*value)) values.push_back(*value);
  }
  return Median(std::move(values));
}

}  // namespace

void StepPace::Add(const DoneStep& step) {
  if (!steps_.empty() && step.step <= steps_.back().step) steps_.clear();
  steps_.push_back(step);
  if (steps_.size() > kStepsOfPace) steps_.pop_front();
}

std::optional<double> StepPace::TokensPerSecond() const {
  return RecentMedian(steps_, [](const DoneStep& step) { return std::optional(step.tokens_per_second); });
}

std::optional<double> StepPace::Mfu() const {
  return RecentMedian(steps_, [](const DoneStep& step) { return step.mfu; });
}

std::optional<absl::Duration> StepPace::PerStep() const {
  if (steps_.size() < 2) return std::nullopt;
  return (steps_.back().done - steps_.front().done) / (steps_.back().step - steps_.front().step);
}

std::optional<absl::Duration> StepPace::TimeLeft(int64_t total_steps) const {
  const std::optional<absl::Duration> each = PerStep();
  if (!each.has_value()) return std::nullopt;
  return *each * std::max<int64_t>(total_steps - steps_.back().step, 0);
}

}  // namespace trainctl::telemetry
