// Curves for charts: a quantity of a run over its steps. Pure functions; thread-safe.
//
//   Curve loss = ...;  // one point per logged step
//   Draw(ThinCurve(loss, 2'000));
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trainctl::report {

struct CurvePoint {
  int64_t step = 0;
  double value = 0;  // not finite at a gap, which breaks the line
};

// Points in increasing order of steps.
using Curve = std::vector<CurvePoint>;

// Returns at most `most` points of `curve`, or all of them if it has no more than that. `most` must be at
// least 8. Keeps both end points and, from each group of neighbors, the lowest value, the highest value and
// one gap, so no spike is lost.
Curve ThinCurve(const Curve& curve, size_t most);

// Replaces each value with the mean of the finite values around it and preserves gaps. The window is about a
// twentieth of the points, at most 500, and smaller at the start, so a steep start is not smoothed away.
Curve SmoothCurve(const Curve& curve);

}  // namespace trainctl::report
