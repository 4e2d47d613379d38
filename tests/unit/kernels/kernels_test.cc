// Every table against plain double-precision formulae written here: those of the CPU, and the GPU's over the
// emulator.

#include "kernels/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/counter_rng.h"
#include "emulated_table.h"
#include "kernels/cuda/nccl_blocks.h"
#include "kernels/cuda/nccl_version.h"

namespace trainctl::kernels {
namespace {

std::vector<float> Random(int64_t count, uint64_t stream, float scale = 1) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(scale * RandomNormal(7, stream, static_cast<uint64_t>(i)));
  return values;
}

const Kernels& TableAt(int index) { return index < NumCpuTables() ? CpuTable(index) : EmulatedCudaTable(); }

class KernelsTest : public ::testing::TestWithParam<int> {
 protected:
  const Kernels& k() const { return TableAt(GetParam()); }
};

constexpr int64_t kRows = 5;
constexpr int64_t kCols = 37;  // no multiple of a vector

TEST_P(KernelsTest, RmsNormAndItsGradient) {
  const auto x = Random(kRows * kCols, 1), w = Random(kCols, 2), dy = Random(kRows * kCols, 3);
  std::vector<float> y(x.size()), rstd(kRows), dx(x.size()), dw(kCols, 0.5f);
  k().f32.rms_norm(y.data(), rstd.data(), x.data(), w.data(), Gain::kWeight, 1e-5f, kRows, kCols);
  k().f32.rms_norm_backward(dx.data(), dw.data(), dy.data(), x.data(), rstd.data(), w.data(), Gain::kWeight,
                            false, kRows, kCols);
  std::vector<double> dw_reference(kCols, 0.5);
  for (int64_t i = 0; i < kRows; ++i) {
    double squares = 0, dot = 0;
    for (int64_t j = 0; j < kCols; ++j) squares += double(x[i * kCols + j]) * x[i * kCols + j];
    const double r = 1 / std::sqrt(squares / kCols + 1e-5);
    for (int64_t j = 0; j < kCols; ++j) dot += double(dy[i * kCols + j]) * w[j] * x[i * kCols + j];
    for (int64_t j = 0; j < kCols; ++j) {
      const size_t at = static_cast<size_t>(i * kCols + j);
      EXPECT_NEAR(y[at], x[at] * r * w[j], 1e-5);
      EXPECT_NEAR(dx[at], r * (dy[at] * w[j] - x[at] * r * r * dot / kCols), 1e-5);
      dw_reference[j] += dy[at] * x[at] * r;
    }
  }
  for (int64_t j = 0; j < kCols; ++j) EXPECT_NEAR(dw[j], dw_reference[j], 1e-5);
  // Added to, and written over the output's gradient.
  auto sum = Random(kRows * kCols, 4);
  const auto before = sum;
  k().f32.rms_norm_backward(sum.data(), dw.data(), dy.data(), x.data(), rstd.data(), w.data(), Gain::kWeight,
                            true, kRows, kCols);
  auto in_place = dy;
  k().f32.rms_norm_backward(in_place.data(), dw.data(), in_place.data(), x.data(), rstd.data(), w.data(),
                            Gain::kWeight, false, kRows, kCols);
  for (size_t i = 0; i < sum.size(); ++i) {
    EXPECT_NEAR(sum[i], before[i] + dx[i], 1e-5);
    EXPECT_EQ(in_place[i], dx[i]);
  }
}

TEST_P(KernelsTest, SwiGluAndItsGradientOverTheInput) {
  auto gate_up = Random(kRows * 2 * kCols, 1, 3);
  const auto dy = Random(kRows * kCols, 2);
  std::vector<float> out(kRows * kCols);
  k().f32.gated_activation(out.data(), gate_up.data(), Activation::kSiLU, kRows, kCols);
  const auto input = gate_up;
  k().f32.gated_activation_backward(gate_up.data(), dy.data(), gate_up.data(), Activation::kSiLU, kRows,
                                    kCols);
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kCols; ++j) {
      const double g = input[i * 2 * kCols + j], u = input[i * 2 * kCols + kCols + j], d = dy[i * kCols + j];
      const double s = 1 / (1 + std::exp(-g));
      EXPECT_NEAR(out[i * kCols + j], g * s * u, 2e-5);
      EXPECT_NEAR(gate_up[i * 2 * kCols + j], d * u * (s + g * s * (1 - s)), 2e-5);
      EXPECT_NEAR(gate_up[i * 2 * kCols + kCols + j], d * g * s, 2e-5);
    }
  }
}

TEST_P(KernelsTest, RopeTurnsPairsAndBack) {
  const int64_t n = 3, heads = 2, d = 8, stride = 20;
  auto x = Random(n * stride, 1);
  const auto before = x;
  const std::vector<int32_t> positions = {0, 4, 2};
  std::vector<float> cos, sin;
  for (int p = 0; p < 5; ++p) {
    for (int j = 0; j < d / 2; ++j) {
      cos.push_back(static_cast<float>(std::cos(0.3 * p * (j + 1))));
      sin.push_back(static_cast<float>(std::sin(0.3 * p * (j + 1))));
    }
  }
  k().f32.rope(x.data(), positions.data(), cos.data(), sin.data(), 1, RopePairs::kHalves, n, heads, d,
               /*rotated=*/d, stride);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t j = 0; j < d / 2; ++j) {
        const size_t low = static_cast<size_t>(i * stride + h * d + j), high = low + d / 2;
        const double angle = 0.3 * positions[i] * (j + 1);
        EXPECT_NEAR(x[low], before[low] * std::cos(angle) - before[high] * std::sin(angle), 1e-5);
        EXPECT_NEAR(x[high], before[high] * std::cos(angle) + before[low] * std::sin(angle), 1e-5);
      }
    }
    for (int64_t j = heads * d; j < stride; ++j) EXPECT_EQ(x[i * stride + j], before[i * stride + j]);
  }
  k().f32.rope(x.data(), positions.data(), cos.data(), sin.data(), -1, RopePairs::kHalves, n, heads, d,
               /*rotated=*/d, stride);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], before[i], 1e-5);
}

// Three parts put side by side and turned back are what rope makes of them when they are there.
TEST_P(KernelsTest, HeadsAreJoinedAndTurnedBack) {
  const int64_t n = 5, heads = 4, kv_heads = 2, d = 8, row = (heads + 2 * kv_heads) * d, positions = 7;
  const auto dq = Random(n * heads * d, 1), dk = Random(n * kv_heads * d, 2),
             dv = Random(n * kv_heads * d, 3);
  const auto cos = Random(positions * d / 2, 4), sin = Random(positions * d / 2, 5);
  const std::vector<int32_t> at = {0, 6, 2, 3, 6};
  std::vector<float> joined(n * row), expected;
  k().f32.join_heads(joined.data(), dq.data(), dk.data(), dv.data(), at.data(), cos.data(), sin.data(), n,
                     heads, kv_heads, d);
  for (int64_t i = 0; i < n; ++i) {
    expected.insert(expected.end(), &dq[i * heads * d], &dq[i * heads * d] + heads * d);
    expected.insert(expected.end(), &dk[i * kv_heads * d], &dk[i * kv_heads * d] + kv_heads * d);
    expected.insert(expected.end(), &dv[i * kv_heads * d], &dv[i * kv_heads * d] + kv_heads * d);
  }
  k().f32.rope(expected.data(), at.data(), cos.data(), sin.data(), -1, RopePairs::kHalves, n,
               heads + kv_heads, d, /*rotated=*/d, row);
  EXPECT_EQ(joined, expected);
}

template <typename T>
void CheckCrossEntropy(const TypedKernels& kernels, double tolerance) {
  const auto random = Random(kRows * kCols, 1, 4);
  std::vector<T> logits(random.begin(), random.end());
  const auto before = logits;
  const std::vector<int32_t> targets = {0, 36, 5, 7, 9};
  const std::vector<uint8_t> mask = {1, 1, 0, 1, 1};
  const double z = 0.0078125;  // exact as a float, too
  const float scale = 0.125f;
  double loss = 1, expected = 1;
  kernels.cross_entropy(&loss, logits.data(), targets.data(), mask.data(), float(z), 0, &scale, kRows, kCols);
  for (int64_t i = 0; i < kRows; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < kCols; ++j) sum += std::exp(double(before[i * kCols + j]));
    const double lse = std::log(sum);
    if (mask[i] != 0) expected += lse - before[i * kCols + targets[i]] + z * lse * lse;
    for (int64_t j = 0; j < kCols; ++j) {
      const double p = std::exp(before[i * kCols + j] - lse);
      const double gradient = mask[i] == 0 ? 0 : scale * (p * (1 + 2 * z * lse) - (j == targets[i] ? 1 : 0));
      EXPECT_NEAR(logits[i * kCols + j], gradient, tolerance);
    }
  }
  EXPECT_NEAR(loss, expected, 10 * tolerance);
}

TEST_P(KernelsTest, CrossEntropyWithMaskAndZLoss) { CheckCrossEntropy<float>(k().f32, 1e-6); }

TEST(KernelsInDouble, CrossEntropyWithMaskAndZLoss) {
  for (int index = 0; index < NumCpuTables(); ++index) CheckCrossEntropy<double>(CpuTable(index).f64, 1e-14);
}

TEST_P(KernelsTest, CrossEntropyShowsNonFiniteLogits) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> logits(kCols, 0.5f);
    logits[3] = bad;
    const int32_t target = 1;
    const uint8_t mask = 1;
    double loss = 0;
    k().f32.cross_entropy(&loss, logits.data(), &target, &mask, 0, 0, nullptr, 1, kCols);
    EXPECT_FALSE(std::isfinite(loss)) << bad;
  }
}

// Before an update: parameters, two states, of which the second is not negative, and a gradient.
struct UpdateOperands {
  static constexpr int64_t kCount = 41;
  std::vector<float> master = Random(kCount, 1), m = Random(kCount, 2, 0.1f), v = Random(kCount, 3, 0.1f),
                     g = Random(kCount, 4);

  UpdateOperands() {
    for (float& x : v) x *= x;
  }
  void Update(const Kernels& kernels, UpdateRule rule, const UpdateOptions& options, int num_states) {
    const UpdateRange range{.master = master.data(),
                            .states = {m.data(), num_states > 1 ? v.data() : nullptr},
                            .gradient = g.data(),
                            .count = kCount,
                            .decays = true};
    kernels.masters_f32.For(rule)(&range, 1, &options);
  }
};

// What any rule reads.
constexpr UpdateOptions kEveryOption{.lr = 1e-2f,
                                     .beta1 = 0.9f,
                                     .beta2 = 0.95f,
                                     .eps = 1e-8f,
                                     .momentum = 0.9f,
                                     .weight_decay = 0.1f,
                                     .factor = 0.5f,
                                     .bias_correction1 = 0.271f,
                                     .bias_correction2 = 0.142625f};

// fp64's table has the same rules: they are held against their definitions below, in fp32.
TEST(KernelsInDouble, UpdatesAreThoseOfFloats) {
  for (int rule = 0; rule < kNumUpdateRules; ++rule) {
    UpdateOperands floats;
    const auto doubles = [](const std::vector<float>& values) {
      return std::vector<double>(values.begin(), values.end());
    };
    std::vector<double> master = doubles(floats.master), m = doubles(floats.m), v = doubles(floats.v);
    const std::vector<double> g = doubles(floats.g);
    const UpdateRange range{.master = master.data(),
                            .states = {m.data(), v.data()},
                            .gradient = g.data(),
                            .count = UpdateOperands::kCount,
                            .decays = true};
    Cpu().masters_f64.For(static_cast<UpdateRule>(rule))(&range, 1, &kEveryOption);
    floats.Update(Cpu(), static_cast<UpdateRule>(rule), kEveryOption, 2);
    double difference = 0;
    for (size_t i = 0; i < master.size(); ++i) {
      EXPECT_NEAR(master[i], floats.master[i], 1e-6) << rule;
      EXPECT_NEAR(m[i], floats.m[i], 1e-6) << rule;
      difference = std::max(difference, std::abs(master[i] - floats.master[i]));
    }
    EXPECT_GT(difference, 0) << rule;  // not rounded on the way
    double squares = 0, expected = 0;
    Cpu().masters_f64.sum_of_squares(&squares, &range, 1);
    const UpdateRange of_floats{.gradient = floats.g.data(), .count = UpdateOperands::kCount};
    Cpu().masters_f32.sum_of_squares(&expected, &of_floats, 1);
    EXPECT_DOUBLE_EQ(squares, expected);
  }
}

// One pass that leaves a bf16 copy of the masters is the update and a rounding after it, bit for bit.
TEST_P(KernelsTest, AnUpdateWithACopyIsTwoPasses) {
  for (int rule = 0; rule < kNumUpdateRules; ++rule) {
    for (const int64_t count : {1, 41, 4096, 10007}) {  // one piece, and more
      std::vector<float> v = Random(count, 3, 0.1f);
      for (float& x : v) x *= x;
      std::vector<float> one[3] = {Random(count, 1), Random(count, 2, 0.1f), v};
      std::vector<float> two[3] = {one[0], one[1], one[2]};
      const std::vector<float> g = Random(count, 4);
      std::vector<uint16_t> copy(static_cast<size_t>(count), 7), rounded(static_cast<size_t>(count), 9);
      const auto range = [&](std::vector<float>(&arrays)[3], void* copied) {
        return UpdateRange{.master = arrays[0].data(),
                           .states = {arrays[1].data(), arrays[2].data()},
                           .gradient = g.data(),
                           .copy = copied,
                           .count = count,
                           .decays = true};
      };
      const UpdateRange of_one = range(one, copy.data()), of_two = range(two, nullptr);
      const UpdateFunction update = k().masters_f32.For(static_cast<UpdateRule>(rule));
      update(&of_one, 1, &kEveryOption);
      update(&of_two, 1, &kEveryOption);
      k().bf16.round(rounded.data(), two[0].data(), count);
      for (int array = 0; array < 3; ++array) EXPECT_EQ(one[array], two[array]) << rule << ' ' << count;
      EXPECT_EQ(copy, rounded) << rule << ' ' << count;
    }
  }
}

// A million masters a of one value, of which an update leaves a + fraction of the distance to the next bf16.
struct ByChance {
  static constexpr int64_t kCount = 1000000;
  static constexpr float kStep = 0x1p-7f;  // from 1 to the next bf16
  std::vector<uint16_t> master;
  std::vector<float> velocity = std::vector<float>(kCount), gradient;

  ByChance(float value, float fraction)
      : master(kCount, static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16)),
        gradient(kCount, -fraction * kStep * value) {}

  void Update(const Kernels& kernels, uint32_t key, uint64_t number, int64_t begin, int64_t end) {
    const UpdateOptions options{.lr = 1, .rounding_key = key};
    const UpdateRange range{.master = master.data() + begin,
                            .states = {velocity.data() + begin},
                            .gradient = gradient.data() + begin,
                            .count = end - begin,
                            .number = number + static_cast<uint64_t>(begin)};
    kernels.masters_bf16.For(UpdateRule::kSgd)(&range, 1, &options);
  }
};

TEST_P(KernelsTest, MastersInBf16AreRoundedByChanceWithoutBias) {
  for (const float value : {1.0f, -1.0f}) {
    for (const float fraction : {0.0f, 0.001f, 0.5f, 0.93f}) {
      for (const uint32_t key : {1u, 0xdeadbeefu}) {
        SCOPED_TRACE(::testing::Message() << value << " and " << fraction << " of a step, key " << key);
        ByChance weights(value, fraction);
        const uint16_t below = weights.master[0];
        weights.Update(k(), key, /*number=*/uint64_t{5} << 40, 0, ByChance::kCount);
        int64_t up = 0, changes = 0;
        for (size_t i = 0; i < weights.master.size(); ++i) {
          ASSERT_TRUE(weights.master[i] == below || weights.master[i] == below + 1);
          up += weights.master[i] != below;
          changes += i > 0 && weights.master[i] != weights.master[i - 1];
        }
        constexpr double kCount = ByChance::kCount;
        const double variance = fraction * (1 - fraction);
        EXPECT_NEAR(static_cast<double>(up) / kCount, fraction, 4 * std::sqrt(variance / kCount));
        // One does not follow from the other: they differ as often as two draws do.
        EXPECT_NEAR(static_cast<double>(changes) / kCount, 2 * variance,
                    4 * std::sqrt(2 * variance / kCount));
      }
    }
  }
}

// What rounding to nearest would lose altogether: 2,000 updates, each a fiftieth of the distance to the next
// bf16.
TEST_P(KernelsTest, AMasterInBf16MovesByUpdatesThatAreSmallerThanItsLastBit) {
  constexpr int64_t kWeights = 2000, kUpdates = 2000;
  ByChance weights(1.0f, -0.02f);
  for (uint32_t update = 0; update < kUpdates; ++update) weights.Update(k(), update, 0, 0, kWeights);
  double mean = 0;
  for (size_t i = 0; i < kWeights; ++i)
    mean += std::bit_cast<float>(uint32_t{weights.master[i]} << 16) / static_cast<double>(kWeights);
  // Downwards a step is half as long, and below 0.5 a quarter: what the sum of updates comes to stays the
  // same.
  EXPECT_NEAR(mean, 1 - kUpdates * 0.02 * ByChance::kStep, 0.005);
}

TEST_P(KernelsTest, ChanceIsAMatterOfKeyAndNumber) {
  ByChance whole(1.0f, 0.4f), parts(1.0f, 0.4f), other_key(1.0f, 0.4f), other_number(1.0f, 0.4f);
  constexpr int64_t kCount = 20000;  // more than one piece
  whole.Update(k(), 3, 7, 0, kCount);
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1}, {1, 5003}, {5003, kCount}})
    parts.Update(k(), 3, 7, begin, end);
  other_key.Update(k(), 4, 7, 0, kCount);
  other_number.Update(k(), 3, 8, 0, kCount);
  EXPECT_EQ(whole.master, parts.master);
  EXPECT_NE(whole.master, other_key.master);
  EXPECT_NE(whole.master, other_number.master);
}

// By every rule: states as of an fp32 master, and the master one of the two bf16 around what that becomes.
TEST_P(KernelsTest, AnUpdateOfBf16MastersIsThatOfFloatsAndOneRounding) {
  for (int rule = 0; rule < kNumUpdateRules; ++rule) {
    for (const int64_t count : {1, 41, 4096, 10007}) {
      std::vector<float> v = Random(count, 3, 0.1f);
      for (float& x : v) x *= x;
      std::vector<float> master = Random(count, 1), m = Random(count, 2, 0.1f), m_of_bf16 = m, v_of_bf16 = v;
      const std::vector<float> g = Random(count, 4);
      std::vector<uint16_t> in_bf16(master.size());
      k().bf16.round(in_bf16.data(), master.data(), count);
      k().bf16.assign(master.data(), in_bf16.data(), count);
      UpdateRange range{.master = master.data(),
                        .states = {m.data(), v.data()},
                        .gradient = g.data(),
                        .count = count,
                        .decays = true};
      k().masters_f32.For(static_cast<UpdateRule>(rule))(&range, 1, &kEveryOption);
      range.master = in_bf16.data();
      range.states = {m_of_bf16.data(), v_of_bf16.data()};
      k().masters_bf16.For(static_cast<UpdateRule>(rule))(&range, 1, &kEveryOption);
      EXPECT_EQ(m, m_of_bf16) << rule << ' ' << count;
      EXPECT_EQ(v, v_of_bf16) << rule << ' ' << count;
      for (size_t i = 0; i < master.size(); ++i) {
        const uint32_t below = std::bit_cast<uint32_t>(master[i]) >> 16;
        ASSERT_TRUE(in_bf16[i] == below || in_bf16[i] == below + 1) << rule << ' ' << i;
      }
    }
  }
}

TEST_P(KernelsTest, WhatIsNoNumberIsNotRoundedIntoOne) {
  ByChance weights(1.0f, 0.5f);
  const float infinity = std::numeric_limits<float>::infinity();
  weights.gradient[0] = infinity;
  weights.gradient[1] = -infinity;
  weights.gradient[2] = std::numeric_limits<float>::quiet_NaN();
  weights.gradient[3] = std::bit_cast<float>(0x7fffffffu);  // NaN: rounding must not turn it into -0
  weights.Update(k(), 1, 0, 0, 5);
  EXPECT_EQ(weights.master[0], 0xff80);
  EXPECT_EQ(weights.master[1], 0x7f80);
  for (const size_t nan : {2, 3}) EXPECT_GT(weights.master[nan] & 0x7fff, 0x7f80) << nan;
}

// More ranges than one launch takes on a GPU, empty ones among them, of which every other one decays: each is
// updated as by a call of its own.
TEST_P(KernelsTest, RangesOfOneCallAreUpdatedAsAlone) {
  constexpr int kRanges = 140;
  for (int rule = 0; rule < kNumUpdateRules; ++rule) {
    std::vector<UpdateOperands> together(kRanges), alone(kRanges);
    std::vector<UpdateRange> list;
    const UpdateFunction update = k().masters_f32.For(static_cast<UpdateRule>(rule));
    double squares = 0.5, expected = 0.5;
    for (int i = 0; i < kRanges; ++i) {
      const auto range = [i](UpdateOperands& o) {
        return UpdateRange{.master = o.master.data(),
                           .states = {o.m.data(), o.v.data()},
                           .gradient = o.g.data(),
                           .count = i % (UpdateOperands::kCount + 1),
                           .decays = i % 2 == 0};
      };
      list.push_back(range(together[i]));
      const UpdateRange one = range(alone[i]);
      update(&one, 1, &kEveryOption);
      k().masters_f32.sum_of_squares(&expected, &one, 1);
    }
    update(list.data(), kRanges, &kEveryOption);
    k().masters_f32.sum_of_squares(&squares, list.data(), kRanges);
    EXPECT_NEAR(squares / expected, 1, 1e-12);
    for (size_t i = 0; i < kRanges; ++i) {
      EXPECT_EQ(together[i].master, alone[i].master) << rule << ' ' << i;
      EXPECT_EQ(together[i].m, alone[i].m) << rule << ' ' << i;
      EXPECT_EQ(together[i].v, alone[i].v) << rule << ' ' << i;
    }
  }
}

TEST_P(KernelsTest, WhatIsNotFiniteIsNotAppliedAndWhatIsLongIsClipped) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto factor_of = [this](double loss, double squares, double clip_norm) {
    float factor = 7;
    k().masters_f32.clip_factor(&factor, &loss, &squares, clip_norm);
    return factor;
  };
  EXPECT_EQ(factor_of(3, 25, 0), 1.0f);   // no clipping
  EXPECT_EQ(factor_of(3, 25, 10), 1.0f);  // shorter than that
  EXPECT_EQ(factor_of(3, 25, 2), static_cast<float>(2 / (5 + 1e-6)));
  for (const double clip_norm : {0.0, 1.0}) {
    for (const double bad : {infinity, -infinity, nan}) {
      EXPECT_TRUE(std::isnan(factor_of(bad, 25, clip_norm))) << bad;
      EXPECT_TRUE(std::isnan(factor_of(3, bad, clip_norm))) << bad;
    }
  }
  const UpdateOperands before;
  UpdateOptions options = kEveryOption;
  options.factor = factor_of(nan, 1, 1);
  for (int rule = 0; rule < kNumUpdateRules; ++rule) {
    UpdateOperands after;
    const UpdateRange range{.master = after.master.data(),
                            .states = {after.m.data(), after.v.data()},
                            .gradient = after.g.data(),
                            .count = UpdateOperands::kCount,
                            .decays = true};
    k().masters_f32.For(static_cast<UpdateRule>(rule))(&range, 1, &options);
    EXPECT_EQ(after.master, before.master);
    EXPECT_EQ(after.m, before.m);
    EXPECT_EQ(after.v, before.v);
  }
}

TEST_P(KernelsTest, AdamWFollowsItsDefinition) {
  const UpdateOperands before;
  UpdateOperands after;
  const UpdateOptions o{.lr = 1e-2f,
                        .beta1 = 0.9f,
                        .beta2 = 0.95f,
                        .eps = 1e-8f,
                        .weight_decay = 0.1f,
                        .factor = 0.5f,
                        .bias_correction1 = 1 - 0.9f * 0.9f,
                        .bias_correction2 = 1 - 0.95f * 0.95f};
  after.Update(k(), UpdateRule::kAdamW, o, 2);
  for (size_t i = 0; i < after.m.size(); ++i) {
    const double gradient = 0.5 * before.g[i], m = 0.9 * before.m[i] + 0.1 * gradient,
                 v = 0.95 * before.v[i] + 0.05 * gradient * gradient;
    const double update = (m / o.bias_correction1) / (std::sqrt(v / o.bias_correction2) + 1e-8);
    EXPECT_NEAR(after.master[i], before.master[i] * (1 - 1e-2 * 0.1) - 1e-2 * update, 1e-6);
    EXPECT_NEAR(after.m[i], m, 1e-6);
    EXPECT_NEAR(after.v[i], v, 1e-6);
  }
}

TEST_P(KernelsTest, LionFollowsItsDefinition) {
  UpdateOperands before;
  before.g[5] = before.m[5] = 0;  // of nothing the sign is 0
  UpdateOperands after = before;
  const UpdateOptions o{.lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.99f, .weight_decay = 0.1f, .factor = 0.5f};
  after.Update(k(), UpdateRule::kLion, o, 1);
  for (size_t i = 0; i < after.m.size(); ++i) {
    const double gradient = 0.5 * before.g[i], average = 0.9 * before.m[i] + 0.1 * gradient;
    const double sign = average == 0 ? 0 : std::copysign(1, average);
    EXPECT_NEAR(after.master[i], before.master[i] - 1e-2 * (sign + 0.1 * before.master[i]), 1e-6);
    EXPECT_NEAR(after.m[i], 0.99 * before.m[i] + 0.01 * gradient, 1e-6);
  }
}

TEST_P(KernelsTest, SgdFollowsItsDefinition) {
  const UpdateOperands before;
  UpdateOperands after;
  const UpdateOptions o{.lr = 1e-2f, .momentum = 0.9f, .weight_decay = 0.1f, .factor = 0.5f};
  after.Update(k(), UpdateRule::kSgd, o, 1);
  for (size_t i = 0; i < after.m.size(); ++i) {
    const double velocity = 0.9 * before.m[i] + (0.5 * before.g[i] + 0.1 * before.master[i]);
    EXPECT_NEAR(after.m[i], velocity, 1e-6);
    EXPECT_NEAR(after.master[i], before.master[i] - 1e-2 * velocity, 1e-6);
  }
}

TEST_P(KernelsTest, BF16RoundsToNearestEven) {
  const std::vector<float> values = {
      1.0f, 1.00390625f, 1.01171875f, -1.00390625f, 3.4e38f, 0.0f, std::numeric_limits<float>::infinity()};
  const std::vector<uint16_t> expected = {0x3f80, 0x3f80, 0x3f82, 0xbf80,
                                          0x7f80, 0x0000, 0x7f80};  // 1 + 2^-8 and 1 + 3 * 2^-8 are ties
  std::vector<uint16_t> rounded(values.size());
  k().bf16.round(rounded.data(), values.data(), static_cast<int64_t>(values.size()));
  EXPECT_EQ(rounded, expected);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  uint16_t bits = 0;
  k().bf16.round(&bits, &nan, 1);
  EXPECT_EQ(bits & 0x7f80, 0x7f80);
  EXPECT_NE(bits & 0x007f, 0);
}

TEST(NcclVersion, AnOlderLibraryThanTheHeaderIsRefusedWithBoth) {
  EXPECT_EQ(WhyNotNccl(/*built=*/22703, /*loaded=*/22703), "");
  EXPECT_EQ(WhyNotNccl(22703, 22701), "");  // patches have one layout of options
  EXPECT_EQ(WhyNotNccl(22703, 22809), "");
  EXPECT_NE(WhyNotNccl(22809, 22703).find("NCCL 2.27.3 is loaded, and this plugin was built for 2.28.9"),
            std::string::npos);
  EXPECT_NE(WhyNotNccl(22809, 30001), "");
  EXPECT_NE(WhyNotNccl(22809, 0).find("no NCCL is loaded"), std::string::npos);
}

TEST(NcclBlocks, KernelsOfAllStreamsFitBesideEachOther) {
  EXPECT_EQ(MostBlocks(/*multiprocessors=*/132, /*num_streams=*/1), 64);
  EXPECT_EQ(MostBlocks(132, 2), 32);
  EXPECT_EQ(MostBlocks(132, 7), 8);
  EXPECT_EQ(MostBlocks(14, 7), 1);  // a slice of a GPU
  for (int multiprocessors = 40; multiprocessors <= 200; ++multiprocessors) {
    for (int num_streams = 1; num_streams <= 8; ++num_streams) {
      const int blocks = MostBlocks(multiprocessors, num_streams);
      EXPECT_EQ(blocks & (blocks - 1), 0) << blocks;
      EXPECT_LE(blocks * num_streams, multiprocessors * 3 / 4);
    }
  }
}

TEST_P(KernelsTest, SumsKeepTheOrderOfTheirInputs) {
  // (big + -big) + small = small, big + (-big + small) = 0 in fp32.
  const std::vector<float> a(20, 1e8f), b(20, -1e8f), c(20, 1.0f);
  std::vector<float> out(20);
  const float* in_order[] = {a.data(), b.data(), c.data()};
  k().sum_in_order(out.data(), in_order, 3, 20);
  for (float x : out) EXPECT_EQ(x, 1.0f);
  const float* other[] = {c.data(), a.data(), b.data()};
  k().sum_in_order(out.data(), other, 3, 20);
  for (float x : out) EXPECT_EQ(x, 0.0f);
}

TEST_P(KernelsTest, EmbeddingAddsRepeatedTokens) {
  const auto table = Random(4 * kCols, 1), dout = Random(3 * kCols, 2);
  const std::vector<int32_t> tokens = {2, 0, 2};
  std::vector<float> out(3 * kCols), gradient(4 * kCols, 0.0f);
  k().f32.embedding(out.data(), table.data(), tokens.data(), 3, kCols);
  k().f32.embedding_backward(gradient.data(), dout.data(), tokens.data(), 3, kCols);
  for (int64_t j = 0; j < kCols; ++j) {
    EXPECT_EQ(out[j], table[2 * kCols + j]);
    EXPECT_FLOAT_EQ(gradient[2 * kCols + j], dout[j] + dout[2 * kCols + j]);
    EXPECT_FLOAT_EQ(gradient[j], dout[kCols + j]);
    EXPECT_EQ(gradient[kCols + j], 0.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, KernelsTest, ::testing::Range(0, NumCpuTables() + 1),
                         [](const auto& info) { return std::string(TableAt(info.param).name); });

}  // namespace
}  // namespace trainctl::kernels
