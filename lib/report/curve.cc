#include "report/curve.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"

namespace trainctl::report {

Curve ThinCurve(const Curve& curve, size_t most) {
  TRAINCTL_CHECK(most >= 8);
  if (curve.size() <= most) return curve;
  const auto is_gap = [](const CurvePoint& point) { return !std::isfinite(point.value); };
  const bool has_gaps = std::any_of(curve.begin(), curve.end(), is_gap);
  const size_t inner = curve.size() - 2;
  const size_t groups = (most - 2) / (has_gaps ? 3 : 2);
  Curve thin = {curve.front()};
  for (size_t group = 0; group < groups; ++group) {
    const auto first = curve.begin() + 1 + static_cast<std::ptrdiff_t>(inner * group / groups);
    const auto last = curve.begin() + 1 + static_cast<std::ptrdiff_t>(inner * (group + 1) / groups);
    auto lowest = last, highest = last, gap = last;
    for (auto point = first; point != last; ++point) {
      if (is_gap(*point)) {
        if (gap == last) gap = point;
        continue;
      }
      if (lowest == last || point->value < lowest->value) lowest = point;
      if (highest == last || point->value > highest->value) highest = point;
    }
    std::vector<Curve::const_iterator> kept = {lowest, highest, gap};
    std::sort(kept.begin(), kept.end());
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    for (const auto point : kept) {
      if (point != last) thin.push_back(*point);
    }
  }
  thin.push_back(curve.back());
  return thin;
}

Curve SmoothCurve(const Curve& curve) {
  // Sums and counts of the finite values before each point.
  std::vector<double> sums = {0};
  std::vector<size_t> counts = {0};
  for (const CurvePoint& point : curve) {
    const bool is_finite = std::isfinite(point.value);
    sums.push_back(sums.back() + (is_finite ? point.value : 0));
    counts.push_back(counts.back() + (is_finite ? 1 : 0));
  }
  const size_t reach = std::min<size_t>(curve.size() / 40, 250);
  Curve smooth = curve;
  for (size_t i = 0; i < curve.size(); ++i) {
    if (!std::isfinite(curve[i].value)) continue;
    const size_t first = i - std::min(i, reach);
    const size_t end = std::min({i + reach, 2 * i, curve.size() - 1}) + 1;
    smooth[i].value = (sums[end] - sums[first]) / static_cast<double>(counts[end] - counts[first]);
  }
  return smooth;
}

}  // namespace trainctl::report
