// A number of a run over its steps, for drawing. Pure; thread safe.
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
  double value = 0;  // not finite: a gap, at which the line breaks
};

// Steps rise from point to point.
using Curve = std::vector<CurvePoint>;

// At most `most` points of `curve`, unchanged if it has no more; `most` is at least 8. Keeps both ends, and
// of each group of neighbors the lowest value, the highest value and one gap, so that no spike is lost.
Curve ThinCurve(const Curve& curve, size_t most);

// The mean of the finite values around each point; gaps stay. It averages over about a twentieth of the
// points, at most 500, and at the start over fewer, so that a steep start is not smoothed away.
Curve SmoothCurve(const Curve& curve);

}  // namespace trainctl::report
