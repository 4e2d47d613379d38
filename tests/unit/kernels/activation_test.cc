// Compares activations with their definitions in double, and gradients with finite differences of those.

#include <gtest/gtest.h>

#include <limits>

#include "typed_tables.h"

namespace trainctl::kernels {
namespace {

constexpr Activation kActivations[] = {Activation::kSiLU, Activation::kGelu, Activation::kGeluTanh,
                                       Activation::kRelu, Activation::kReluSquared};

double Definition(Activation activation, double x) {
  switch (activation) {
    case Activation::kSiLU:
      return x / (1 + std::exp(-x));
    case Activation::kGelu:
      return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kReluSquared:
      return x > 0 ? x * x : 0;
  }
  return 0;
}

double SlopeOf(Activation activation, double x) {
  return Slope([&](double value) { return Definition(activation, value); }, x);
}

class ActivationTest : public TypedTablesTest {};

// The allowed error in fp32 is a few units in the last place of values around one.
double Allowed(const TypedTable& table, double expected) {
  return table.dtype == DType::kF32 ? 2e-6 + 2e-6 * std::abs(expected) : table.Near(expected);
}

// Values between the tails. Their number is not a multiple of a vector.
std::vector<double> Inputs(int64_t count) {
  std::vector<double> inputs;
  for (int64_t i = 0; i < count; ++i)
    inputs.push_back(-12.01 + 24.03 * static_cast<double>(i) / static_cast<double>(count));
  return inputs;
}

TEST_P(ActivationTest, ValuesAndSlopesAreThoseOfTheDefinitions) {
  const TypedTable& table = GetParam();
  for (const Activation activation : kActivations) {
    for (const int64_t count : {0, 1, 7, 1003}) {
      SCOPED_TRACE(::testing::Message() << "activation " << static_cast<int>(activation) << " of " << count);
      const Elements x(table.dtype, Inputs(count)), dout(table.dtype, Normals(count, 1));
      Elements out = x, from = x, dfrom = dout, dx = x, over_x = x, over_dout = dout;
      table.k().activation(out.data(), from.data(), activation, count);
      table.k().activation_backward(dx.data(), dfrom.data(), from.data(), activation, count);
      EXPECT_EQ(from, x);
      EXPECT_EQ(dfrom, dout);
      for (int64_t i = 0; i < count; ++i) {
        const double value = Definition(activation, x[i]), slope = dout[i] * SlopeOf(activation, x[i]);
        ASSERT_NEAR(out[i], value, Allowed(table, value)) << x[i];
        ASSERT_NEAR(dx[i], slope, 2 * Allowed(table, slope) + kNearSlope) << x[i];
      }
      table.k().activation_backward(over_x.data(), dfrom.data(), over_x.data(), activation, count);
      EXPECT_EQ(over_x, dx);
      table.k().activation_backward(over_dout.data(), over_dout.data(), from.data(), activation, count);
      EXPECT_EQ(over_dout, dx);
      table.k().activation(from.data(), from.data(), activation, count);
      EXPECT_EQ(from, out);
    }
  }
}

TEST_P(ActivationTest, GatesAreActivatedAndMultiplied) {
  const TypedTable& table = GetParam();
  struct Rows {
    int64_t n, f;
  };
  for (const Activation activation : kActivations) {
    for (const auto& [n, f] : {Rows{0, 3}, Rows{1, 1}, Rows{3, 37}, Rows{2, 264}}) {
      SCOPED_TRACE(::testing::Message()
                   << "activation " << static_cast<int>(activation) << ", " << n << " x " << f);
      Elements gate_up(table.dtype, Normals(n * 2 * f, 1, 2)), dout(table.dtype, Normals(n * f, 2));
      Elements out(table.dtype, Normals(n * f, 3)), dgate_up(table.dtype, Normals(n * 2 * f, 4));
      table.k().gated_activation(out.data(), gate_up.data(), activation, n, f);
      table.k().gated_activation_backward(dgate_up.data(), dout.data(), gate_up.data(), activation, n, f);
      for (int64_t row = 0; row < n; ++row) {
        for (int64_t i = 0; i < f; ++i) {
          const int64_t gate_at = row * 2 * f + i, up_at = gate_at + f;
          const double gate = gate_up[gate_at], up = gate_up[up_at], dy = dout[row * f + i];
          const double value = Definition(activation, gate), slope = SlopeOf(activation, gate);
          ASSERT_NEAR(out[row * f + i], value * up, (1 + std::abs(up)) * Allowed(table, value * up));
          const double slack = (1 + std::abs(dy * up)) * kNearSlope;
          ASSERT_NEAR(dgate_up[gate_at], dy * up * slope, 4 * Allowed(table, dy * up * slope) + slack);
          ASSERT_NEAR(dgate_up[up_at], dy * value, 4 * Allowed(table, dy * value));
        }
      }
      Elements over = gate_up;
      table.k().gated_activation_backward(over.data(), dout.data(), over.data(), activation, n, f);
      EXPECT_EQ(over, dgate_up);
    }
  }
}

TEST_P(ActivationTest, TailsAreFiniteAndNaNStays) {
  const TypedTable& table = GetParam();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> inputs = {200, -200, 90, -90, 1e15, -1e15, 0, nan};
  const auto count = static_cast<int64_t>(inputs.size());
  for (const Activation activation : kActivations) {
    SCOPED_TRACE(static_cast<int>(activation));
    Elements x(table.dtype, inputs), dout(table.dtype, std::vector<double>(inputs.size(), 1)), out = x,
                                                                                               dx = x;
    table.k().activation(out.data(), x.data(), activation, count);
    table.k().activation_backward(dx.data(), dout.data(), x.data(), activation, count);
    for (int64_t i = 0; i < count; ++i) {
      if (std::isnan(x[i])) {
        EXPECT_TRUE(std::isnan(out[i]));
        EXPECT_TRUE(std::isnan(dx[i]) || activation == Activation::kRelu);
        continue;
      }
      const bool squared = activation == Activation::kReluSquared;
      const double value = x[i] <= 0 ? 0 : squared ? x[i] * x[i] : x[i];
      EXPECT_NEAR(out[i], value, 1e-6 + value * (squared ? 1.0 / 256 : 0));
      const bool is_step = activation == Activation::kRelu || squared;
      const double slope = x[i] < 0 ? 0 : x[i] > 0 ? (squared ? 2 * x[i] : 1) : (is_step ? 0 : 0.5);
      EXPECT_NEAR(dx[i], slope, 1e-6);
    }
  }
}

TRAINCTL_FOR_TYPED_TABLES(ActivationTest);

}  // namespace
}  // namespace trainctl::kernels
