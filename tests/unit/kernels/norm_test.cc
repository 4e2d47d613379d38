// Compares norms with their definitions in double, and gradients with finite differences of those.

#include <gtest/gtest.h>

#include "typed_tables.h"

namespace trainctl::kernels {
namespace {

constexpr double kEps = 1e-5f;
constexpr Gain kGains[] = {Gain::kWeight, Gain::kOnePlusWeight, Gain::kNone};

double GainOf(Gain gain, double w) {
  return gain == Gain::kNone ? 1 : gain == Gain::kOnePlusWeight ? 1 + w : w;
}

// The definition of a norm of one row or head, in double.
struct Reference {
  std::vector<double> x, w, dy;
  Gain gain;
  bool centered = false;          // layer_norm
  std::vector<double> bias = {};  // empty if there is none

  double Mean() const {
    if (!centered) return 0;
    double sum = 0;
    for (const double value : x) sum += value;
    return sum / static_cast<double>(x.size());
  }
  double Rstd() const {
    double squares = 0;
    const double mean = Mean();
    for (const double value : x) squares += (value - mean) * (value - mean);
    return 1 / std::sqrt(squares / static_cast<double>(x.size()) + kEps);
  }
  std::vector<double> Y() const {
    std::vector<double> y;
    const double mean = Mean(), rstd = Rstd();
    for (size_t i = 0; i < x.size(); ++i) y.push_back(YAt(i, mean, rstd));
    return y;
  }
  double YAt(size_t i, double mean, double rstd) const {
    return (x[i] - mean) * rstd * GainOf(gain, w[i]) + (bias.empty() ? 0 : bias[i]);
  }
  // A loss for which dy is the gradient of y.
  double Loss() const {
    const double mean = Mean(), rstd = Rstd();
    double loss = 0;
    for (size_t i = 0; i < x.size(); ++i) loss += dy[i] * YAt(i, mean, rstd);
    return loss;
  }
  // Returns the slope of the loss. A loss with many terms has a large rounding error and little curvature, so
  // it needs a larger step.
  double Slope(std::vector<double> Reference::*of, size_t i) const {
    Reference moved = *this;
    return kernels::Slope(
        [&](double value) {
          (moved.*of)[i] = value;
          return moved.Loss();
        },
        (this->*of)[i], x.size() < 64 ? 1e-5 : 1e-4);
  }
};

class NormTest : public TypedTablesTest {};

struct HeadsShape {
  int64_t n, heads, d, gap;  // gap: number of elements of a row after its heads
};
// No rows, one element, less than a vector, an odd number, several lanes per head, several slices of rows,
// more heads than a block has groups, and heads that are too wide for a group.
const HeadsShape kHeadsShapes[] = {{0, 2, 8, 3},   {1, 1, 1, 0},   {1, 3, 8, 8},      {5, 2, 37, 11},
                                   {3, 4, 64, 64}, {19, 5, 16, 0}, {2, 17, 128, 128}, {1, 2, 520, 8}};

TEST_P(NormTest, HeadsOfRowsAreNormedAlone) {
  const TypedTable& table = GetParam();
  for (const auto& [n, heads, d, gap] : kHeadsShapes) {
    for (const Gain gain : kGains) {
      SCOPED_TRACE(::testing::Message()
                   << n << " rows, " << heads << " heads of " << d << ", gain " << static_cast<int>(gain));
      const int64_t y_stride = heads * d + 2 * gap, x_stride = heads * d + gap;
      const Elements x(table.dtype, Normals(n * x_stride, 1)), w(table.dtype, Normals(d, 2));
      Elements x_given = x, w_given = w, y(table.dtype, Normals(n * y_stride, 3));
      const Elements y_before = y;
      Elements rstd(table.accumulator(), std::vector<double>(static_cast<size_t>(n * heads)));
      void* const weight = gain == Gain::kNone ? nullptr : w_given.data();
      table.k().rms_norm_heads(y.data(), rstd.data(), x_given.data(), weight, gain, kEps, n, heads, d,
                               y_stride, x_stride);
      EXPECT_EQ(x_given, x);
      for (int64_t row = 0; row < n; ++row) {
        for (int64_t head = 0; head < heads; ++head) {
          const Reference reference{
              .x = x.Values(row * x_stride + head * d, d), .w = w.Values(0, d), .gain = gain};
          EXPECT_NEAR(rstd[row * heads + head], reference.Rstd(), table.NearSum(reference.Rstd()));
          const std::vector<double> expected = reference.Y();
          for (int64_t i = 0; i < d; ++i) {
            const double value = expected[static_cast<size_t>(i)];
            ASSERT_NEAR(y[row * y_stride + head * d + i], value, table.Near(value)) << row << ' ' << i;
          }
        }
        for (int64_t i = heads * d; i < y_stride; ++i)
          EXPECT_EQ(y[row * y_stride + i], y_before[row * y_stride + i]);
      }
    }
  }
}

TEST_P(NormTest, GradientsOfHeadsAreSlopes) {
  const TypedTable& table = GetParam();
  for (const auto& [n, heads, d, gap] : kHeadsShapes) {
    for (const Gain gain : kGains) {
      SCOPED_TRACE(::testing::Message()
                   << n << " rows, " << heads << " heads of " << d << ", gain " << static_cast<int>(gain));
      const int64_t dy_stride = heads * d + 2 * gap, x_stride = heads * d + gap;
      const Elements dy(table.dtype, Normals(n * dy_stride, 4));
      Elements x(table.dtype, Normals(n * x_stride, 1)), w(table.dtype, Normals(d, 2)), dy_given = dy;
      Elements dx(table.dtype, Normals(n * dy_stride, 5)), dw(table.accumulator(), Normals(d, 6));
      const Elements dx_before = dx, dw_before = dw;
      std::vector<double> rstd_values, dx_expected(dx.size()), dw_expected = dw.Values(0, d);
      for (int64_t row = 0; row < n; ++row) {
        for (int64_t head = 0; head < heads; ++head) {
          const Reference reference{.x = x.Values(row * x_stride + head * d, d),
                                    .w = w.Values(0, d),
                                    .dy = dy.Values(row * dy_stride + head * d, d),
                                    .gain = gain};
          rstd_values.push_back(reference.Rstd());
          for (int64_t i = 0; i < d; ++i) {
            const auto at = static_cast<size_t>(i);
            dx_expected[static_cast<size_t>(row * dy_stride + head * d + i)] =
                reference.Slope(&Reference::x, at);
            if (gain != Gain::kNone) dw_expected[at] += reference.Slope(&Reference::w, at);
          }
        }
      }
      Elements rstd(table.accumulator(), rstd_values);
      const auto run = [&, n = n, heads = heads, d = d](Elements& to, Elements& from) {
        const bool none = gain == Gain::kNone;
        table.k().rms_norm_heads_backward(to.data(), none ? nullptr : dw.data(), from.data(), x.data(),
                                          rstd.data(), none ? nullptr : w.data(), gain, n, heads, d,
                                          dy_stride, x_stride);
      };
      run(dx, dy_given);
      EXPECT_EQ(dy_given, dy);
      for (int64_t row = 0; row < n; ++row) {
        for (int64_t i = 0; i < dy_stride; ++i) {
          const int64_t at = row * dy_stride + i;
          if (i >= heads * d) {
            EXPECT_EQ(dx[at], dx_before[at]);
            continue;
          }
          const double expected = dx_expected[static_cast<size_t>(at)];
          ASSERT_NEAR(dx[at], expected, 2 * table.Near(expected) + kNearSlope) << row << ' ' << i;
        }
      }
      for (int64_t i = 0; i < d; ++i) {
        const double expected = dw_expected[static_cast<size_t>(i)];
        ASSERT_NEAR(dw[i], expected,
                    5 * table.NearSum(expected) + kNearSlope * static_cast<double>(n * heads));
      }
      // In place, with dx written over dy.
      dw = dw_before;
      run(dy_given, dy_given);
      for (int64_t row = 0; row < n; ++row) {
        for (int64_t i = 0; i < dy_stride; ++i) {
          const int64_t at = row * dy_stride + i;
          EXPECT_EQ(dy_given[at], i < heads * d ? dx[at] : dy[at]);
        }
      }
    }
  }
}

struct RowsShape {
  int64_t n, h;
};
// No rows, one element, an odd number, several slices, and more units than a warp has lanes.
const RowsShape kRowsShapes[] = {{0, 3}, {1, 1}, {5, 37}, {19, 16}, {2, 261}};

TEST_P(NormTest, RowsAreNormedWithEachGain) {
  const TypedTable& table = GetParam();
  for (const auto& [n, h] : kRowsShapes) {
    for (const Gain gain : kGains) {
      SCOPED_TRACE(::testing::Message() << n << " x " << h << ", gain " << static_cast<int>(gain));
      Elements x(table.dtype, Normals(n * h, 1)), added(table.dtype, Normals(n * h, 2)), sum = x;
      Elements w(table.dtype, Normals(h, 3)), y = x, y_of_sum = x;
      const Elements zeros(table.accumulator(), std::vector<double>(static_cast<size_t>(n)));
      Elements rstd = zeros, rstd_of_sum = zeros;
      void* const weight = gain == Gain::kNone ? nullptr : w.data();
      table.k().rms_norm(y.data(), rstd.data(), x.data(), weight, gain, kEps, n, h);
      table.k().add_rms_norm(sum.data(), y_of_sum.data(), rstd_of_sum.data(), added.data(), weight, gain,
                             kEps, n, h);
      for (int64_t row = 0; row < n; ++row) {
        const Reference of_x{.x = x.Values(row * h, h), .w = w.Values(0, h), .gain = gain};
        const Reference of_sum{.x = sum.Values(row * h, h), .w = of_x.w, .gain = gain};
        for (int64_t i = row * h; i < (row + 1) * h; ++i) {
          const double expected = x[i] + added[i];
          EXPECT_NEAR(sum[i], expected, table.Near(expected));
        }
        EXPECT_NEAR(rstd[row], of_x.Rstd(), table.NearSum(of_x.Rstd()));
        EXPECT_NEAR(rstd_of_sum[row], of_sum.Rstd(), table.NearSum(of_sum.Rstd()));
        const std::vector<double> expected = of_x.Y(), expected_of_sum = of_sum.Y();
        for (int64_t i = 0; i < h; ++i) {
          const double one = expected[static_cast<size_t>(i)],
                       other = expected_of_sum[static_cast<size_t>(i)];
          ASSERT_NEAR(y[row * h + i], one, table.Near(one));
          ASSERT_NEAR(y_of_sum[row * h + i], other, table.Near(other));
        }
      }
    }
  }
}

TEST_P(NormTest, GradientsOfRowsAreSlopesWithEachGain) {
  const TypedTable& table = GetParam();
  for (const auto& [n, h] : kRowsShapes) {
    for (const Gain gain : kGains) {
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(::testing::Message() << n << " x " << h << ", gain " << static_cast<int>(gain)
                                          << (accumulate ? ", accumulated" : ""));
        Elements x(table.dtype, Normals(n * h, 1)), w(table.dtype, Normals(h, 2));
        Elements dy(table.dtype, Normals(n * h, 3)), dx(table.dtype, Normals(n * h, 4));
        Elements dw(table.accumulator(), Normals(h, 5));
        const Elements dx_before = dx;
        std::vector<double> rstd_values, dx_expected, dw_expected = dw.Values(0, h);
        for (int64_t row = 0; row < n; ++row) {
          const Reference reference{
              .x = x.Values(row * h, h), .w = w.Values(0, h), .dy = dy.Values(row * h, h), .gain = gain};
          rstd_values.push_back(reference.Rstd());
          for (size_t i = 0; i < static_cast<size_t>(h); ++i) {
            dx_expected.push_back(reference.Slope(&Reference::x, i) +
                                  (accumulate ? dx_before[static_cast<int64_t>(dx_expected.size())] : 0));
            if (gain != Gain::kNone) dw_expected[i] += reference.Slope(&Reference::w, i);
          }
        }
        Elements rstd(table.accumulator(), rstd_values);
        const bool none = gain == Gain::kNone;
        table.k().rms_norm_backward(dx.data(), none ? nullptr : dw.data(), dy.data(), x.data(), rstd.data(),
                                    none ? nullptr : w.data(), gain, accumulate, n, h);
        for (int64_t i = 0; i < n * h; ++i) {
          const double expected = dx_expected[static_cast<size_t>(i)];
          ASSERT_NEAR(dx[i], expected, 2 * table.Near(expected) + kNearSlope) << i;
        }
        for (int64_t i = 0; i < h; ++i) {
          const double expected = dw_expected[static_cast<size_t>(i)];
          ASSERT_NEAR(dw[i], expected, 5 * table.NearSum(expected) + kNearSlope * static_cast<double>(n));
        }
      }
    }
  }
}

TEST_P(NormTest, LayerNormOfRows) {
  const TypedTable& table = GetParam();
  for (const auto& [n, h] : kRowsShapes) {
    for (const Gain gain : kGains) {
      for (const bool has_bias : {false, true}) {
        SCOPED_TRACE(::testing::Message() << n << " x " << h << ", gain " << static_cast<int>(gain)
                                          << (has_bias ? ", with a bias" : ""));
        std::vector<double> shifted = Normals(n * h, 1);
        for (double& value : shifted) value += 3;  // so that the mean is not 0
        Elements x(table.dtype, shifted), w(table.dtype, Normals(h, 3)), bias(table.dtype, Normals(h, 4)),
            y = x;
        Elements mean(table.accumulator(), std::vector<double>(static_cast<size_t>(n))), rstd = mean;
        table.k().layer_norm(y.data(), mean.data(), rstd.data(), x.data(),
                             gain == Gain::kNone ? nullptr : w.data(), has_bias ? bias.data() : nullptr, gain,
                             kEps, n, h);
        for (int64_t row = 0; row < n; ++row) {
          const Reference reference{.x = x.Values(row * h, h),
                                    .w = w.Values(0, h),
                                    .gain = gain,
                                    .centered = true,
                                    .bias = bias.Values(0, has_bias ? h : 0)};
          EXPECT_NEAR(mean[row], reference.Mean(), table.NearSum(reference.Mean()));
          EXPECT_NEAR(rstd[row], reference.Rstd(), table.NearSum(reference.Rstd()));
          const std::vector<double> expected = reference.Y();
          for (int64_t i = 0; i < h; ++i) {
            const double value = expected[static_cast<size_t>(i)];
            ASSERT_NEAR(y[row * h + i], value, 2 * table.Near(value));
          }
        }
      }
    }
  }
}

TEST_P(NormTest, GradientsOfLayerNormAreSlopes) {
  const TypedTable& table = GetParam();
  for (const auto& [n, h] : kRowsShapes) {
    if (h == 1) continue;  // y does not depend on x
    for (const Gain gain : kGains) {
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(::testing::Message() << n << " x " << h << ", gain " << static_cast<int>(gain)
                                          << (accumulate ? ", accumulated" : ""));
        Elements x(table.dtype, Normals(n * h, 1)), w(table.dtype, Normals(h, 2));
        Elements dy(table.dtype, Normals(n * h, 3)), dx(table.dtype, Normals(n * h, 4));
        Elements dw(table.accumulator(), Normals(h, 5)), dbias(table.accumulator(), Normals(h, 6));
        const Elements dx_before = dx;
        std::vector<double> means, rstds, dx_expected;
        std::vector<double> dw_expected = dw.Values(0, h), dbias_expected = dbias.Values(0, h);
        for (int64_t row = 0; row < n; ++row) {
          const Reference reference{.x = x.Values(row * h, h),
                                    .w = w.Values(0, h),
                                    .dy = dy.Values(row * h, h),
                                    .gain = gain,
                                    .centered = true,
                                    .bias = std::vector<double>(static_cast<size_t>(h))};
          means.push_back(reference.Mean());
          rstds.push_back(reference.Rstd());
          for (size_t i = 0; i < static_cast<size_t>(h); ++i) {
            dx_expected.push_back(reference.Slope(&Reference::x, i) +
                                  (accumulate ? dx_before[static_cast<int64_t>(dx_expected.size())] : 0));
            if (gain != Gain::kNone) dw_expected[i] += reference.Slope(&Reference::w, i);
            dbias_expected[i] += reference.Slope(&Reference::bias, i);
          }
        }
        Elements mean(table.accumulator(), means), rstd(table.accumulator(), rstds), in_place = dy;
        Elements dw_again = dw, dbias_again = dbias;
        const bool none = gain == Gain::kNone;
        const auto run = [&, n = n, h = h](Elements& to, Elements& from, Elements& weight_sum,
                                           Elements& bias_sum) {
          table.k().layer_norm_backward(to.data(), none ? nullptr : weight_sum.data(), bias_sum.data(),
                                        from.data(), x.data(), mean.data(), rstd.data(),
                                        none ? nullptr : w.data(), gain, accumulate, n, h);
        };
        run(dx, dy, dw, dbias);
        for (int64_t i = 0; i < n * h; ++i) {
          const double expected = dx_expected[static_cast<size_t>(i)];
          ASSERT_NEAR(dx[i], expected, 3 * table.Near(expected) + kNearSlope) << i;
        }
        for (int64_t i = 0; i < h; ++i) {
          const auto at = static_cast<size_t>(i);
          const double slack = kNearSlope * static_cast<double>(n);
          ASSERT_NEAR(dw[i], dw_expected[at], 5 * table.NearSum(dw_expected[at]) + slack);
          ASSERT_NEAR(dbias[i], dbias_expected[at], 5 * table.NearSum(dbias_expected[at]) + slack);
        }
        if (accumulate) continue;
        run(in_place, in_place, dw_again, dbias_again);
        EXPECT_EQ(in_place, dx);
        EXPECT_EQ(dw_again, dw);
        EXPECT_EQ(dbias_again, dbias);
      }
    }
  }
}

// On the CPU, each thread processes some of the rows.
TEST_P(NormTest, RowsInPiecesAreTheSameBits) {
  const TypedTable& table = GetParam();
  const int64_t n = 7, heads = 3, d = 40, stride = heads * d;
  Elements x(table.dtype, Normals(n * stride, 1)), w(table.dtype, Normals(d, 2));
  Elements dy(table.dtype, Normals(n * stride, 3)), dw(table.accumulator(), Normals(d, 4));
  Elements row_w(table.dtype, Normals(stride, 5)), row_dw(table.accumulator(), Normals(stride, 6));
  struct Results {
    Elements y, rstd, dx, layer_y, mean, layer_rstd, layer_dx;
  };
  const std::vector<double> zeros(static_cast<size_t>(n * stride));
  const auto run = [&](const std::vector<int64_t>& cuts) {
    const Elements of_rows(table.dtype, zeros), sums(table.accumulator(), zeros);
    Results to{of_rows, sums, of_rows, of_rows, sums, sums, of_rows};
    for (size_t piece = 0; piece + 1 < cuts.size(); ++piece) {
      const int64_t begin = cuts[piece], rows = cuts[piece + 1] - begin, at = begin * stride;
      table.k().rms_norm_heads(to.y.at(at), to.rstd.at(begin * heads), x.at(at), w.data(), Gain::kWeight,
                               kEps, rows, heads, d, stride, stride);
      table.k().rms_norm_heads_backward(to.dx.at(at), dw.data(), dy.at(at), x.at(at),
                                        to.rstd.at(begin * heads), w.data(), Gain::kWeight, rows, heads, d,
                                        stride, stride);
      table.k().layer_norm(to.layer_y.at(at), to.mean.at(begin), to.layer_rstd.at(begin), x.at(at),
                           row_w.data(), nullptr, Gain::kWeight, kEps, rows, stride);
      table.k().layer_norm_backward(to.layer_dx.at(at), row_dw.data(), nullptr, dy.at(at), x.at(at),
                                    to.mean.at(begin), to.layer_rstd.at(begin), row_w.data(), Gain::kWeight,
                                    /*accumulate=*/false, rows, stride);
    }
    return to;
  };
  const Results whole = run({0, n}), pieces = run({0, 1, 1, 5, n});
  EXPECT_EQ(whole.y, pieces.y);
  EXPECT_EQ(whole.rstd, pieces.rstd);
  EXPECT_EQ(whole.dx, pieces.dx);
  EXPECT_EQ(whole.layer_y, pieces.layer_y);
  EXPECT_EQ(whole.mean, pieces.mean);
  EXPECT_EQ(whole.layer_rstd, pieces.layer_rstd);
  EXPECT_EQ(whole.layer_dx, pieces.layer_dx);
}

TRAINCTL_FOR_TYPED_TABLES(NormTest);

}  // namespace
}  // namespace trainctl::kernels
