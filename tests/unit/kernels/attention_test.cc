// The CPU's attention, on every table, against the definition in double precision.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/counter_rng.h"
#include "kernels/kernels.h"

namespace trainctl::kernels {
namespace {

using Doubles = std::vector<double>;

// A fused qkv activation of `sharing` query heads and one of keys and values, and what is done with it.
struct Problem {
  int64_t tokens, sharing, head_dim;
  float scale = 1;  // of the queries, keys and values
  int64_t window = 0;
  float score_scale = 0;
  float softcap = 0;

  int64_t qkv_stride() const { return (sharing + 2) * head_dim + 3; }  // other heads lie behind
  int64_t out_stride() const { return sharing * head_dim + 5; }
};

template <typename T>
T Round(float x) {
  if constexpr (sizeof(T) == sizeof(float)) return x;
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return static_cast<T>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

template <typename T>
double Value(T x) {
  if constexpr (sizeof(T) == sizeof(float)) return x;
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

template <typename T>
std::vector<T> Random(int64_t count, uint64_t stream, float scale) {
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(Round<T>(scale * RandomNormal(11, stream, static_cast<uint64_t>(i))));
  }
  return values;
}

template <typename T>
struct Answer {
  std::vector<T> out, dqkv;
  std::vector<float> lse;
};

template <typename T>
Answer<T> Ask(const TypedKernels& kernels, const Problem& p, const std::vector<T>& qkv,
              const std::vector<T>& dout, int64_t queries_at_once) {
  const T untouched = Round<T>(77);
  Answer<T> answer;
  answer.out.assign(static_cast<size_t>(p.tokens * p.out_stride()), untouched);
  answer.dqkv.assign(qkv.size(), untouched);
  answer.lse.assign(static_cast<size_t>(p.sharing * (p.tokens + 1)), 77.0f);
  const AttentionHeads heads = {.tokens = p.tokens,
                                .heads = p.sharing,
                                .head_dim = p.head_dim,
                                .qkv_stride = p.qkv_stride(),
                                .out_stride = p.out_stride(),
                                .lse_stride = p.tokens + 1,
                                .queries = qkv.data(),
                                .keys = qkv.data() + p.sharing * p.head_dim,
                                .values = qkv.data() + (p.sharing + 1) * p.head_dim,
                                .scale = p.score_scale,
                                .window = p.window,
                                .softcap = p.softcap};
  for (const bool backward : {false, true}) {
    // What lies in the workspace must not matter, nor what lies behind it be touched.
    const auto floats = static_cast<size_t>(AttentionWorkspace(p.tokens, p.head_dim, backward));
    std::vector<float> room(floats + 32, NAN);
    float* const workspace =
        room.data() + (64 - reinterpret_cast<uintptr_t>(room.data()) % 64) / sizeof(float);
    float* const behind = workspace + floats;
    *behind = 1234;
    if (backward) {
      T* const dqkv = answer.dqkv.data();
      kernels.attention_backward(heads, answer.out.data(), answer.lse.data(),
                                 {.dout = dout.data(),
                                  .dqueries = dqkv,
                                  .dkeys = dqkv + p.sharing * p.head_dim,
                                  .dvalues = dqkv + (p.sharing + 1) * p.head_dim},
                                 workspace);
    } else {
      for (int64_t first = 0; first < p.tokens; first += queries_at_once) {
        kernels.attention(heads, answer.out.data(), answer.lse.data(), first,
                          std::min(queries_at_once, p.tokens - first), workspace);
      }
    }
    EXPECT_EQ(*behind, 1234);
  }
  return answer;
}

// Softmax attention and its gradient by their definitions.
struct Reference {
  Doubles out, lse, dqkv;
};

template <typename T>
Reference Define(const Problem& p, const std::vector<T>& qkv, const std::vector<T>& dout) {
  const int64_t d = p.head_dim;
  const double scale = p.score_scale > 0 ? p.score_scale : 1 / std::sqrt(static_cast<double>(d));
  const double cap = p.softcap;
  Reference r = {Doubles(static_cast<size_t>(p.tokens * p.out_stride())),
                 Doubles(static_cast<size_t>(p.sharing * (p.tokens + 1))), Doubles(qkv.size())};
  const auto at = [&](int64_t token, int64_t head, int64_t i) {
    return static_cast<size_t>(token * p.qkv_stride() + head * d + i);
  };
  for (int64_t h = 0; h < p.sharing; ++h) {
    for (int64_t q = 0; q < p.tokens; ++q) {
      const auto row = static_cast<size_t>(q * p.out_stride() + h * d);
      const int64_t first = p.window > 0 ? std::max<int64_t>(q - p.window + 1, 0) : 0;
      const auto keys = static_cast<size_t>(q + 1);
      Doubles weight(keys), dweight(keys), slope(keys, 1);
      double sum = 0, dot = 0;
      for (int64_t k = first; k <= q; ++k) {
        const auto key = static_cast<size_t>(k);
        double score = 0;
        for (int64_t i = 0; i < d; ++i) score += Value(qkv[at(q, h, i)]) * Value(qkv[at(k, p.sharing, i)]);
        score *= scale;
        if (cap > 0) {
          slope[key] = 1 / (std::cosh(score / cap) * std::cosh(score / cap));  // the derivative of tanh
          score = cap * std::tanh(score / cap);
        }
        weight[key] = std::exp(score);
        sum += weight[key];
      }
      r.lse[static_cast<size_t>(h * (p.tokens + 1) + q)] = std::log(sum);
      for (int64_t k = first; k <= q; ++k) {
        const auto key = static_cast<size_t>(k);
        const double w = weight[key] /= sum;
        for (int64_t i = 0; i < d; ++i) {
          const double value = Value(qkv[at(k, p.sharing + 1, i)]);
          const double dy = Value(dout[row + static_cast<size_t>(i)]);
          r.out[row + static_cast<size_t>(i)] += w * value;
          dweight[key] += dy * value;
          r.dqkv[at(k, p.sharing + 1, i)] += w * dy;
        }
        dot += w * dweight[key];
      }
      for (int64_t k = first; k <= q; ++k) {
        const auto key = static_cast<size_t>(k);
        const double dscore = weight[key] * (dweight[key] - dot) * slope[key] * scale;
        for (int64_t i = 0; i < d; ++i) {
          r.dqkv[at(q, h, i)] += dscore * Value(qkv[at(k, p.sharing, i)]);
          r.dqkv[at(k, p.sharing, i)] += dscore * Value(qkv[at(q, h, i)]);
        }
      }
    }
  }
  return r;
}

// The largest difference, in parts of the largest value; what is not of these heads must be as it was.
template <typename T>
double Distance(const std::vector<T>& ours, const Doubles& reference, int64_t stride, int64_t columns) {
  double difference = 0, largest = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    if (static_cast<int64_t>(i) % stride >= columns) {
      EXPECT_EQ(Value(ours[i]), 77);
      continue;
    }
    const double here = std::abs(Value(ours[i]) - reference[i]);
    difference = std::isnan(here) ? INFINITY : std::max(difference, here);
    largest = std::max(largest, std::abs(reference[i]));
  }
  return difference / largest;
}

template <typename T>
void ExpectDefinition(const Problem& p, double out_tolerance, double gradient_tolerance) {
  const auto qkv = Random<T>(p.tokens * p.qkv_stride(), 1, p.scale);
  const auto dout = Random<T>(p.tokens * p.out_stride(), 2, 1);
  const Reference reference = Define(p, qkv, dout);
  for (int table = 0; table < NumCpuTables(); ++table) {
    const Kernels& k = CpuTable(table);
    const TypedKernels& kernels = sizeof(T) == sizeof(float) ? k.f32 : k.bf16;
    const Answer<T> answer = Ask<T>(kernels, p, qkv, dout, p.tokens);
    SCOPED_TRACE(testing::Message() << k.name << ": " << p.tokens << " tokens, " << p.sharing << " heads of "
                                    << p.head_dim << ", window " << p.window << ", score scale "
                                    << p.score_scale << ", cap " << p.softcap);
    EXPECT_LT(Distance(answer.out, reference.out, p.out_stride(), p.sharing * p.head_dim), out_tolerance);
    EXPECT_LT(Distance(answer.lse, reference.lse, p.tokens + 1, p.tokens), 1e-6);
    EXPECT_LT(Distance(answer.dqkv, reference.dqkv, p.qkv_stride(), (p.sharing + 2) * p.head_dim),
              gradient_tolerance);
    // However the queries are cut.
    const Answer<T> again = Ask<T>(kernels, p, qkv, dout, kAttentionQueries);
    EXPECT_EQ(std::memcmp(answer.out.data(), again.out.data(), answer.out.size() * sizeof(T)), 0);
    EXPECT_EQ(std::memcmp(answer.dqkv.data(), again.dqkv.data(), answer.dqkv.size() * sizeof(T)), 0);
    EXPECT_EQ(answer.lse, again.lse);
  }
}

TEST(CpuAttention, IsTheDefinitionAtTheBordersOfTilesAndStrips) {
  for (const int64_t tokens : {1, 2, 12, 13, 16, 47, 48, 49, 96, 127, 128, 129, 145, 300}) {
    ExpectDefinition<float>({tokens, 2, 16}, 2e-6, 4e-6);
  }
}

TEST(CpuAttention, IsTheDefinitionForHeadsOfAnySize) {
  for (const int64_t head_dim : {2, 8, 20, 32, 48, 64, 80, 128, 160}) {
    ExpectDefinition<float>({67, 1, head_dim}, 2e-6, 4e-6);
  }
  ExpectDefinition<float>({67, 3, 8}, 2e-6, 4e-6);
}

// A maximum that rises from tile to tile, and weights of next to nothing.
TEST(CpuAttention, IsTheDefinitionForLargeScores) {
  ExpectDefinition<float>({300, 1, 32, /*scale=*/4}, 2e-5, 2e-4);
}

TEST(CpuAttention, RoundsToBf16AtTheEndAlone) { ExpectDefinition<uint16_t>({150, 2, 32}, 4e-3, 4e-3); }

// Windows that begin and end at each place within a vector, a strip and a tile, or next to one.
TEST(CpuAttention, IsTheDefinitionForAnyWindow) {
  for (const int64_t tokens : {1, 13, 49, 145, 300, 331}) {
    for (const int64_t window : {1, 2, 7, 11, 12, 13, 16, 17, 47, 48, 49, 90, 127, 128, 129, 160, 299, 330}) {
      if (window > tokens) continue;
      ExpectDefinition<float>({.tokens = tokens, .sharing = 2, .head_dim = 16, .window = window}, 2e-6, 4e-6);
    }
  }
  ExpectDefinition<uint16_t>({.tokens = 331, .sharing = 3, .head_dim = 20, .window = 75}, 4e-3, 4e-3);
}

TEST(CpuAttention, IsTheDefinitionWithAScaleAndASoftCap) {
  for (const int64_t tokens : {1, 49, 145, 300}) {
    for (const int64_t window : {0, 1, 50, 131}) {
      for (const float score_scale : {0.0f, 0.1f, 1.0f}) {
        for (const float softcap : {0.0f, 50.0f, 5.0f, 1.0f}) {  // 1: most scores are near the cap
          ExpectDefinition<float>({.tokens = tokens,
                                   .sharing = 2,
                                   .head_dim = 16,
                                   .window = window,
                                   .score_scale = score_scale,
                                   .softcap = softcap},
                                  4e-6, 1e-5);
        }
      }
    }
  }
  ExpectDefinition<uint16_t>(
      {.tokens = 331, .sharing = 3, .head_dim = 20, .window = 75, .score_scale = 0.3f, .softcap = 2}, 4e-3,
      4e-3);
}

template <typename T>
bool HasSameBits(const Answer<T>& a, const Answer<T>& b) {
  return std::memcmp(a.out.data(), b.out.data(), a.out.size() * sizeof(T)) == 0 &&
         std::memcmp(a.dqkv.data(), b.dqkv.data(), a.dqkv.size() * sizeof(T)) == 0 && a.lse == b.lse;
}

TEST(CpuAttention, AWindowOfAllTokensAndTheUsualScaleChangeNoBit) {
  for (const int64_t tokens : {1, 64, 300}) {
    Problem p = {.tokens = tokens, .sharing = 2, .head_dim = 16};
    const auto qkv = Random<float>(p.tokens * p.qkv_stride(), 1, 1);
    const auto dout = Random<float>(p.tokens * p.out_stride(), 2, 1);
    for (int table = 0; table < NumCpuTables(); ++table) {
      const TypedKernels& kernels = CpuTable(table).f32;
      p.window = 0, p.score_scale = 0;
      const Answer<float> usual = Ask<float>(kernels, p, qkv, dout, tokens);
      p.score_scale = 0.25f;
      for (const int64_t window : {tokens, tokens + 1, int64_t{1} << 40}) {
        p.window = window;
        EXPECT_TRUE(HasSameBits(Ask<float>(kernels, p, qkv, dout, tokens), usual))
            << tokens << ", " << window;
      }
    }
  }
}

TEST(CpuAttention, NotANumberComesThrough) {
  const Problem p = {60, 1, 16};
  auto qkv = Random<float>(p.tokens * p.qkv_stride(), 1, 1);
  const auto dout = Random<float>(p.tokens * p.out_stride(), 2, 1);
  qkv[static_cast<size_t>(30 * p.qkv_stride())] = NAN;  // a query
  for (int table = 0; table < NumCpuTables(); ++table) {
    const Answer<float> answer = Ask<float>(CpuTable(table).f32, p, qkv, dout, p.tokens);
    EXPECT_TRUE(std::isnan(answer.out[static_cast<size_t>(30 * p.out_stride())]));
    EXPECT_TRUE(std::isnan(answer.dqkv[static_cast<size_t>(30 * p.qkv_stride())]));
    EXPECT_FALSE(std::isnan(answer.out[static_cast<size_t>(29 * p.out_stride())]));
    EXPECT_FALSE(std::isnan(answer.out[static_cast<size_t>(31 * p.out_stride())]));
  }
}

}  // namespace
}  // namespace trainctl::kernels
