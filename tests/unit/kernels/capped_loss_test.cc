// Compares the loss of capped logits with its definition in double, and its gradient with finite differences.
// Also tests products with a number.

#include <gtest/gtest.h>

#include <limits>

#include "typed_tables.h"

namespace trainctl::kernels {
namespace {

constexpr double kZLoss = 0.0078125;  // exact as a float

double Capped(double x, double cap) { return cap == 0 ? x : cap * std::tanh(x / cap); }

double LossOfRow(const std::vector<double>& logits, size_t target, double cap) {
  double sum = 0;
  for (const double x : logits) sum += std::exp(Capped(x, cap));
  const double lse = std::log(sum);
  return lse - Capped(logits[target], cap) + kZLoss * lse * lse;
}

class CappedLossTest : public TypedTablesTest {};

TEST_P(CappedLossTest, LossAndSlopes) {
  const TypedTable& table = GetParam();
  const float scale = 0.125f;
  struct Shape {
    int64_t n, vocab;
  };
  for (const auto& [n, vocab] : {Shape{0, 3}, Shape{1, 1}, Shape{4, 37}, Shape{3, 264}}) {
    for (const double cap : {0.0, 3.0, 30.0}) {
      SCOPED_TRACE(::testing::Message() << n << " x " << vocab << ", cap " << cap);
      const Elements before(table.dtype, Normals(n * vocab, 1, 4));
      std::vector<int32_t> targets;
      std::vector<uint8_t> mask;
      for (int64_t i = 0; i < n; ++i) {
        targets.push_back(static_cast<int32_t>(i * 31 % vocab));
        mask.push_back(i % 3 == 2 ? 0 : 1);
      }
      Elements logits = before, kept = before;
      double loss = 1, loss_alone = 1, expected = 1;
      table.k().cross_entropy(&loss, logits.data(), targets.data(), mask.data(), static_cast<float>(kZLoss),
                              static_cast<float>(cap), &scale, n, vocab);
      table.k().cross_entropy(&loss_alone, kept.data(), targets.data(), mask.data(),
                              static_cast<float>(kZLoss), static_cast<float>(cap), nullptr, n, vocab);
      EXPECT_EQ(kept, before);
      EXPECT_EQ(loss, loss_alone);
      for (int64_t i = 0; i < n; ++i) {
        std::vector<double> row;
        for (int64_t j = 0; j < vocab; ++j) row.push_back(before[i * vocab + j]);
        const auto target = static_cast<size_t>(targets[static_cast<size_t>(i)]);
        const bool counts = mask[static_cast<size_t>(i)] != 0;
        if (counts) expected += LossOfRow(row, target, cap);
        for (size_t j = 0; j < row.size(); ++j) {
          const double slope = Slope(
              [&](double value) {
                std::vector<double> moved = row;
                moved[j] = value;
                return LossOfRow(moved, target, cap);
              },
              row[j]);
          const double gradient = counts ? scale * slope : 0;
          const double allowed =
              table.dtype == DType::kBF16 ? table.Near(gradient) : (table.dtype == DType::kF64 ? 1e-9 : 2e-6);
          ASSERT_NEAR(logits[i * vocab + static_cast<int64_t>(j)], gradient, allowed) << i << ' ' << j;
        }
      }
      EXPECT_NEAR(loss, expected, table.dtype == DType::kF64 ? 1e-12 : 3e-5);
    }
  }
}

TEST_P(CappedLossTest, LargeLogitsAreCappedAndNaNIsNotHidden) {
  const TypedTable& table = GetParam();
  const double infinity = std::numeric_limits<double>::infinity(),
               nan = std::numeric_limits<double>::quiet_NaN();
  const int32_t target = 1;
  const uint8_t mask = 1;
  const float one = 1;
  for (const double large : {1e4, 1e30, infinity}) {
    Elements logits(table.dtype, {large, -large, 0.5, -large});
    double loss = 0;
    table.k().cross_entropy(&loss, logits.data(), &target, &mask, 0, /*cap=*/10, &one, 1, 4);
    EXPECT_NEAR(loss, 20 + std::log1p(2 * std::exp(-20) + std::exp(Capped(0.5, 10) - 10)), 1e-5);
    EXPECT_EQ(logits[0], 0);  // its slope is 0
    EXPECT_EQ(logits[1], 0);
  }
  Elements logits(table.dtype, {0.5, 0.25, nan, 1});
  double loss = 0;
  table.k().cross_entropy(&loss, logits.data(), &target, &mask, 0, /*cap=*/10, nullptr, 1, 4);
  EXPECT_TRUE(std::isnan(loss));
}

TEST_P(CappedLossTest, ScaleIsAProductRoundedOnce) {
  const TypedTable& table = GetParam();
  for (const int64_t count : {0, 1, 7, 1003}) {
    const Elements x(table.dtype, Normals(count, 1));
    for (const float factor : {48.0f, 0.22f, -1.0f}) {
      Elements from = x, out(table.dtype, Normals(count, 2));
      table.k().scale(out.data(), from.data(), factor, count);
      EXPECT_EQ(from, x);
      std::vector<double> expected;  // exact for fp32 elements, which are rounded once
      for (int64_t i = 0; i < count; ++i) {
        const double product = x[i] * static_cast<double>(factor);
        expected.push_back(table.dtype == DType::kF64 ? product
                                                      : static_cast<double>(static_cast<float>(product)));
      }
      EXPECT_EQ(out, Elements(table.dtype, expected));
      table.k().scale(from.data(), from.data(), factor, count);
      EXPECT_EQ(from, out);
    }
  }
}

TRAINCTL_FOR_TYPED_TABLES(CappedLossTest);

}  // namespace
}  // namespace trainctl::kernels
