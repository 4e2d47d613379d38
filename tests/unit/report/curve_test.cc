#include "report/curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace trainctl::report {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Curve Wave(int64_t points) {
  Curve curve;
  for (int64_t i = 0; i < points; ++i) {
    curve.push_back({i + 1, 3 + std::sin(0.01 * static_cast<double>(i))});
  }
  return curve;
}

bool StepsRise(const Curve& curve) {
  return std::adjacent_find(curve.begin(), curve.end(), [](const CurvePoint& a, const CurvePoint& b) {
           return a.step >= b.step;
         }) == curve.end();
}

const CurvePoint* Find(const Curve& curve, int64_t step) {
  const auto found = std::find_if(curve.begin(), curve.end(),
                                  [step](const CurvePoint& point) { return point.step == step; });
  return found == curve.end() ? nullptr : &*found;
}

TEST(ThinCurve, AShortCurveStaysAsItIs) {
  const Curve curve = Wave(2'000);
  const Curve thin = ThinCurve(curve, 2'000);
  ASSERT_EQ(thin.size(), curve.size());
  for (size_t i = 0; i < thin.size(); ++i) EXPECT_EQ(thin[i].step, curve[i].step);
  EXPECT_TRUE(ThinCurve({}, 8).empty());
}

TEST(ThinCurve, KeepsTheEndsAndEverySpike) {
  Curve curve = Wave(100'000);
  curve[31'415].value = 1'000;
  curve[27'182].value = -1'000;
  for (const size_t most : {size_t{8}, size_t{100}, size_t{2'000}}) {
    const Curve thin = ThinCurve(curve, most);
    EXPECT_LE(thin.size(), most);
    EXPECT_GE(thin.size(), most / 2);
    EXPECT_TRUE(StepsRise(thin));
    EXPECT_EQ(thin.front().step, 1);
    EXPECT_EQ(thin.back().step, 100'000);
    EXPECT_NE(Find(thin, 31'416), nullptr);
    EXPECT_NE(Find(thin, 27'183), nullptr);
  }
}

TEST(ThinCurve, AGapOfOneStepSurvives) {
  Curve curve = Wave(50'000);
  curve[777].value = kNan;
  curve[40'000].value = kInf;
  const Curve thin = ThinCurve(curve, 1'000);
  EXPECT_LE(thin.size(), 1'000U);
  EXPECT_TRUE(StepsRise(thin));
  ASSERT_NE(Find(thin, 778), nullptr);
  EXPECT_TRUE(std::isnan(Find(thin, 778)->value));
  EXPECT_NE(Find(thin, 40'001), nullptr);
}

TEST(ThinCurve, ACurveOfGapsIsOneToo) {
  Curve curve = Wave(10'000);
  for (CurvePoint& point : curve) point.value = kNan;
  const Curve thin = ThinCurve(curve, 100);
  EXPECT_LE(thin.size(), 100U);
  EXPECT_TRUE(StepsRise(thin));
}

TEST(SmoothCurve, AveragesNoiseAwayAndKeepsGaps) {
  Curve curve;
  for (int64_t i = 0; i < 4'000; ++i) curve.push_back({i + 1, i % 2 == 0 ? 1.0 : 3.0});
  curve[2'000].value = kNan;
  const Curve smooth = SmoothCurve(curve);
  ASSERT_EQ(smooth.size(), curve.size());
  EXPECT_TRUE(std::isnan(smooth[2'000].value));
  for (size_t i = 200; i < smooth.size(); ++i) {
    if (i == 2'000) continue;
    EXPECT_NEAR(smooth[i].value, 2, 0.02) << i;
  }
}

TEST(SmoothCurve, ASteepStartIsNotLate) {
  Curve curve;
  for (int64_t i = 0; i < 400; ++i) curve.push_back({i + 1, 10.0 - 0.02 * static_cast<double>(i)});
  const Curve smooth = SmoothCurve(curve);
  for (size_t i = 0; i < 380; ++i) EXPECT_NEAR(smooth[i].value, curve[i].value, 1e-9) << i;
}

TEST(SmoothCurve, FewPointsStayAsTheyAre) {
  const Curve curve = Wave(30);
  const Curve smooth = SmoothCurve(curve);
  for (size_t i = 0; i < curve.size(); ++i) EXPECT_NEAR(smooth[i].value, curve[i].value, 1e-12);
}

}  // namespace
}  // namespace trainctl::report
