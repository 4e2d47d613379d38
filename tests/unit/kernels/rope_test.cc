// Compares rope with its definition in double.

#include <gtest/gtest.h>

#include "typed_tables.h"

namespace trainctl::kernels {
namespace {

constexpr int64_t kPositions = 11;

class RopeTest : public TypedTablesTest {};

struct RopeShape {
  int64_t n, heads, d, rotated, stride;
};
// No rows, one pair, a whole head, half a head, an odd head, and more units than a block has threads.
const RopeShape kShapes[] = {{0, 2, 4, 4, 8},      {1, 1, 2, 2, 2},   {3, 2, 64, 64, 128},
                             {3, 4, 64, 32, 300},  {5, 3, 13, 6, 41}, {2, 2, 80, 20, 160},
                             {2, 70, 32, 16, 2240}};

struct Angles {
  std::vector<int32_t> positions;
  std::vector<float> cos, sin;

  explicit Angles(const RopeShape& shape) {
    for (int64_t i = 0; i < shape.n; ++i) positions.push_back(static_cast<int32_t>(i * 7 % kPositions));
    for (int64_t i = 0; i < kPositions * shape.rotated / 2; ++i) {
      const double angle = 0.37 * static_cast<double>(i);
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
};

TEST_P(RopeTest, PairsOfTheFirstElementsTurnAndTheRestStays) {
  const TypedTable& table = GetParam();
  for (const RopeShape& shape : kShapes) {
    const auto& [n, heads, d, rotated, stride] = shape;
    const Angles angles(shape);
    const int64_t half = rotated / 2;
    const Elements before(table.dtype, Normals(n * stride, 1));
    for (const RopePairs pairs : {RopePairs::kHalves, RopePairs::kNeighbors}) {
      for (const double sign : {1.0, -1.0}) {
        SCOPED_TRACE(::testing::Message() << n << " rows, " << heads << " heads of " << d << ", " << rotated
                                          << " of which turn, pairs " << static_cast<int>(pairs));
        Elements x = before;
        table.k().rope(x.data(), angles.positions.data(), angles.cos.data(), angles.sin.data(),
                       static_cast<float>(sign), pairs, n, heads, d, rotated, stride);
        for (int64_t row = 0; row < n; ++row) {
          for (int64_t column = 0; column < stride; ++column) {
            const int64_t at = row * stride + column, i = column % d;
            if (column >= heads * d || i >= rotated) {
              ASSERT_EQ(x[at], before[at]) << row << ' ' << column;
              continue;
            }
            const bool is_half = pairs == RopePairs::kHalves;
            const bool is_first = is_half ? i < half : i % 2 == 0;
            const int64_t other = at + (is_first ? 1 : -1) * (is_half ? half : 1);
            const auto angle = static_cast<size_t>(angles.positions[static_cast<size_t>(row)] * half +
                                                   (is_half ? i % half : i / 2));
            const double expected = before[at] * angles.cos[angle] -
                                    (is_first ? 1 : -1) * sign * before[other] * angles.sin[angle];
            ASSERT_NEAR(x[at], expected, table.Near(expected)) << row << ' ' << column;
          }
        }
      }
    }
  }
}

// The backward pass rotates back, because the transpose of a rotation is its inverse.
TEST_P(RopeTest, TheOtherSignTurnsBack) {
  const TypedTable& table = GetParam();
  for (const RopeShape& shape : kShapes) {
    const Angles angles(shape);
    for (const RopePairs pairs : {RopePairs::kHalves, RopePairs::kNeighbors}) {
      const Elements before(table.dtype, Normals(shape.n * shape.stride, 1));
      Elements x = before;
      for (const float sign : {1.0f, -1.0f}) {
        table.k().rope(x.data(), angles.positions.data(), angles.cos.data(), angles.sin.data(), sign, pairs,
                       shape.n, shape.heads, shape.d, shape.rotated, shape.stride);
      }
      for (int64_t i = 0; i < shape.n * shape.stride; ++i) {
        // cos and sin are floats even for fp64 elements. bf16 elements are rounded between the two rotations,
        // with an error relative to the length of the pair.
        const double allowed = table.dtype == DType::kBF16 ? 0.03 : 1e-5;
        ASSERT_NEAR(x[i], before[i], allowed);
      }
    }
  }
}

TRAINCTL_FOR_TYPED_TABLES(RopeTest);

}  // namespace
}  // namespace trainctl::kernels
