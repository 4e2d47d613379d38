// The CUDA operators, run by the emulator, against the CPU's table over many shapes. Each case is run in
// several orders of threads and blocks, on "devices" of several sizes, and with each operand misaligned in
// turn: all of these give the same bits, and none writes a byte outside an operand.

// clang-format off: the emulator brings the language of the sources.
#include "cuda_emulated.h"
// clang-format on

#include <gtest/gtest.h>

#include <limits>

#include "base/counter_rng.h"
#include "emulated_table.h"
#if defined(TRAINCTL_EMULATOR_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace trainctl::kernels {
namespace {

using cuda_emulator::Emulator;
using cuda_emulator::Order;

struct Bf {
  uint16_t bits;
};

float AsFloat(float x) { return x; }
float AsFloat(double x) { return static_cast<float>(x); }
float AsFloat(Bf x) { return __uint_as_float(uint32_t{x.bits} << 16); }

template <typename T>
std::vector<T> Random(int64_t count, uint64_t stream, float scale = 1) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(scale * RandomNormal(11, stream, static_cast<uint64_t>(i)));
  if constexpr (std::is_same_v<T, float>) {
    return values;
  } else {
    std::vector<T> rounded(values.size());
    CpuTable(0).bf16.round(rounded.data(), values.data(), count);
    return rounded;
  }
}

std::vector<int32_t> RandomIndices(int64_t count, uint64_t stream, uint64_t bound) {
  std::vector<int32_t> indices;
  for (int64_t i = 0; i < count; ++i)
    indices.push_back(static_cast<int32_t>(RandomBelow(11, stream, static_cast<uint64_t>(i), bound)));
  return indices;
}

struct Tolerance {
  double absolute = 0;
  double relative = 0;
};
constexpr Tolerance kExact = {};

// One run's operands, each between two guards of 0xff (NaN, -1), which AddressSanitizer also forbids to read.
class Operands {
 public:
  explicit Operands(uint32_t misaligned) : misaligned_(misaligned) {}

  // A copy of `values` in memory of its own; after the run it may differ from the CPU's by `tolerance`.
  template <typename T>
  T* Add(const std::vector<T>& values, Tolerance tolerance = kExact) {
    const size_t index = operands_.size();
    operands_.push_back(std::make_unique<Operand>());
    Operand& operand = *operands_.back();
    operand.bytes = values.size() * sizeof(T);
    operand.begin = kGuard + ((misaligned_ >> std::min<size_t>(index, 31) & 1) != 0 ? sizeof(T) : 0);
    operand.total = operand.begin + operand.bytes + kGuard;
    operand.memory.reset(new Line[operand.total / sizeof(Line) + 1]);
    std::memset(operand.data() - operand.begin, 0xff, operand.total);
    if (!values.empty()) std::memcpy(operand.data(), values.data(), operand.bytes);
    operand.compare = [tolerance](const Operand& a, const Operand& b, size_t which) {
      CompareAs<T>(a, b, which, tolerance);
    };
    Guard(operand, true);
    return reinterpret_cast<T*>(operand.data());
  }

  void ExpectGuardsWhole() {
    for (size_t i = 0; i < operands_.size(); ++i) {
      Operand& operand = *operands_[i];
      Guard(operand, false);
      const unsigned char* start = operand.data() - operand.begin;
      for (size_t at = 0; at < operand.total; ++at) {
        if (at >= operand.begin && at < operand.begin + operand.bytes) continue;
        ASSERT_EQ(start[at], 0xff) << "operand " << i << " was written "
                                   << static_cast<int64_t>(at - operand.begin)
                                   << " bytes from its begin; it has " << operand.bytes;
      }
    }
  }
  void ExpectNear(const Operands& other) const {
    for (size_t i = 0; i < operands_.size(); ++i)
      operands_[i]->compare(*operands_[i], *other.operands_[i], i);
  }
  void ExpectSameBits(const Operands& other) const {
    for (size_t i = 0; i < operands_.size(); ++i) {
      EXPECT_EQ(std::memcmp(operands_[i]->data(), other.operands_[i]->data(), operands_[i]->bytes), 0)
          << "operand " << i;
    }
  }
  size_t count() const { return operands_.size(); }

 private:
  static constexpr size_t kGuard = 64;
  struct alignas(16) Line {
    unsigned char bytes[16];
  };
  struct Operand {
    std::unique_ptr<Line[]> memory;
    size_t begin, bytes, total;
    std::function<void(const Operand&, const Operand&, size_t)> compare;
    unsigned char* data() const { return reinterpret_cast<unsigned char*>(memory.get()) + begin; }
  };

  // Forbids or allows the guards to everyone.
  static void Guard([[maybe_unused]] const Operand& operand, [[maybe_unused]] bool on) {
#if defined(TRAINCTL_EMULATOR_ASAN)
    if (on) {
      __asan_poison_memory_region(operand.data() - operand.begin, operand.begin);
      __asan_poison_memory_region(operand.data() + operand.bytes, kGuard);
    } else {
      __asan_unpoison_memory_region(operand.data() - operand.begin, operand.total);
    }
#endif
  }

  template <typename T>
  static void CompareAs(const Operand& a, const Operand& b, size_t which, Tolerance tolerance) {
    ASSERT_EQ(a.bytes, b.bytes);
    if (tolerance.absolute == 0 && tolerance.relative == 0) {
      EXPECT_EQ(std::memcmp(a.data(), b.data(), a.bytes), 0) << "operand " << which;
      return;
    }
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, Bf>) {
      for (size_t i = 0; i < a.bytes / sizeof(T); ++i) {
        T mine, expected;
        std::memcpy(&mine, a.data() + i * sizeof(T), sizeof(T));
        std::memcpy(&expected, b.data() + i * sizeof(T), sizeof(T));
        const double x = AsFloat(mine), y = AsFloat(expected);
        if (std::isnan(x) && std::isnan(y)) continue;
        ASSERT_LE(std::abs(x - y), tolerance.absolute + tolerance.relative * std::abs(y))
            << x << " against " << y << " of the CPU; operand " << which << ", element " << i;
      }
    }
  }

  uint32_t misaligned_;
  std::vector<std::unique_ptr<Operand>> operands_;
};

// Runs `call`, which adds its operands and calls one function, with the CPU's table and in every variation
// with the emulated one.
template <typename Call>
void Check(const Call& call) {
  Operands expected(0);
  call(CpuTable(0), expected);
  expected.ExpectGuardsWhole();
  std::unique_ptr<Operands> first;
  const auto vary = [&](Order order, int multiprocessors, uint32_t misaligned) {
    SCOPED_TRACE(::testing::Message() << "order " << static_cast<int>(order) << ", " << multiprocessors
                                      << " multiprocessors, misaligned operands " << misaligned);
    Emulator::Get().set_order(order);
    cuda::emulated_multiprocessors = multiprocessors;
    auto operands = std::make_unique<Operands>(misaligned);
    call(EmulatedCudaTable(), *operands);
    operands->ExpectGuardsWhole();
    if (first == nullptr) {
      operands->ExpectNear(expected);
      first = std::move(operands);
    } else {
      operands->ExpectSameBits(*first);
    }
    Emulator::Get().set_order(Order::kForward);
    cuda::emulated_multiprocessors = 1;
  };
  vary(Order::kForward, 1, 0);
  vary(Order::kForward, 1, 0);
  vary(Order::kBackward, 3, 0);
  vary(Order::kShuffled, 1, 0);
  vary(Order::kShuffled, 2, ~0u);
  for (size_t i = 0; i < first->count(); ++i) vary(Order::kForward, 2, 1u << i);
}

// Arithmetic in fp32 that is ordered otherwise than the CPU's; in bf16 a result may fall on the neighbour.
template <typename T>
constexpr Tolerance Near(double absolute = 2e-5) {
  return std::is_same_v<T, float> ? Tolerance{absolute, 1e-5} : Tolerance{absolute, 1.0 / 128};
}
constexpr Tolerance kNearFloat = {1e-5, 2e-5};

template <typename T>
class CudaEmulated : public ::testing::Test {
 protected:
  static const TypedKernels& Of(const Kernels& kernels) {
    return std::is_same_v<T, float> ? kernels.f32 : kernels.bf16;
  }
};
using Types = ::testing::Types<float, Bf>;
struct TypeNames {
  template <typename T>
  static std::string GetName(int) {
    return std::is_same_v<T, float> ? "f32" : "bf16";
  }
};
TYPED_TEST_SUITE(CudaEmulated, Types, TypeNames);

struct Extent {
  int64_t n, h;
};
// One element, less than a unit, odd, whole units, more units than threads of a block (h of the norms: more
// than is kept in registers where 512 threads keep 4 units), more rows than blocks, of one
// and of several warps.
const Extent kExtents[] = {{1, 1},    {3, 3},    {5, 37},  {2, 64},   {7, 264},
                           {1, 2052}, {2, 4099}, {150, 8}, {70, 1032}};

TYPED_TEST(CudaEmulated, FlatOperators) {
  using T = TypeParam;
  for (int64_t count : {1, 3, 8, 255, 4096, 9001}) {
    SCOPED_TRACE(count);
    const auto x = Random<T>(count, 1), y = Random<T>(count, 2);
    const auto sum = Random<float>(count, 3);
    Check([&](const Kernels& k, Operands& o) { this->Of(k).add(o.Add(y), o.Add(x), count); });
    Check([&](const Kernels& k, Operands& o) { this->Of(k).scale(o.Add(y), o.Add(x), 0.7f, count); });
    Check([&](const Kernels& k, Operands& o) {
      T* const in_place = o.Add(x);
      this->Of(k).scale(in_place, in_place, -3.3f, count);
    });
    Check([&](const Kernels& k, Operands& o) { this->Of(k).accumulate(o.Add(sum), o.Add(x), count); });
    Check([&](const Kernels& k, Operands& o) { this->Of(k).assign(o.Add(sum), o.Add(x), count); });
    Check([&](const Kernels& k, Operands& o) { this->Of(k).round(o.Add(y), o.Add(sum), count); });
  }
}

TYPED_TEST(CudaEmulated, EmptyCallsLaunchNothing) {
  using T = TypeParam;
  const TypedKernels& k = this->Of(EmulatedCudaTable());
  const int64_t before = Emulator::Get().launches();
  T t = {};
  float f = 3;
  double loss = 5;
  const int32_t token = 0;
  const uint8_t mask = 1;
  k.embedding(&t, &t, &token, 0, 1);
  k.embedding_backward(&f, &t, &token, 0, 1);
  k.rms_norm(&t, &f, &t, &t, Gain::kWeight, 1e-5f, 0, 1);
  k.add_rms_norm(&t, &t, &f, &t, &t, Gain::kWeight, 1e-5f, 0, 1);
  k.rms_norm_backward(&t, &f, &t, &t, &f, &t, Gain::kWeight, true, 0, 1);
  k.rms_norm_heads(&t, &f, &t, &t, Gain::kWeight, 1e-5f, 0, 1, 1, 1, 1);
  k.rms_norm_heads_backward(&t, &f, &t, &t, &f, &t, Gain::kWeight, 0, 1, 1, 1, 1);
  k.layer_norm(&t, &f, &f, &t, &t, &t, Gain::kWeight, 1e-5f, 0, 1);
  k.layer_norm_backward(&t, &f, &f, &t, &t, &f, &f, &t, Gain::kWeight, true, 0, 1);
  k.rope(&t, &token, &f, &f, 1, RopePairs::kNeighbors, 0, 1, 2, 2, 2);
  k.join_heads(&t, &t, &t, &t, &token, &f, &f, 0, 1, 1, 2);
  k.gated_activation(&t, &t, Activation::kGelu, 0, 1);
  k.gated_activation_backward(&t, &t, &t, Activation::kGelu, 0, 1);
  k.activation(&t, &t, Activation::kGelu, 0);
  k.activation_backward(&t, &t, &t, Activation::kGelu, 0);
  k.scale(&t, &t, 2, 0);
  k.add(&t, &t, 0);
  k.add_bias(&t, &t, 0, 1);
  k.bias_gradient(&f, &t, 0, 1);
  k.accumulate(&f, &t, 0);
  k.assign(&f, &t, 0);
  k.round(&t, &f, 0);
  k.cross_entropy(&loss, &t, &token, &mask, 0, 0, &f, 0, 1);
  EXPECT_EQ(Emulator::Get().launches(), before);
  EXPECT_EQ(f, 3);
  EXPECT_EQ(loss, 5);
}

TYPED_TEST(CudaEmulated, RmsNorm) {
  using T = TypeParam;
  for (const auto [n, h] : kExtents) {
    SCOPED_TRACE(::testing::Message() << n << " x " << h);
    const int64_t rows = n, cols = h;
    const auto x = Random<T>(n * h, 1), w = Random<T>(h, 2), y = Random<T>(n * h, 3);
    const std::vector<float> rstd(static_cast<size_t>(n));
    Check([&](const Kernels& k, Operands& o) {
      this->Of(k).rms_norm(o.Add(y, Near<T>()), o.Add(rstd, kNearFloat), o.Add(x), o.Add(w), Gain::kWeight,
                           1e-5f, rows, cols);
    });
    Check([&](const Kernels& k, Operands& o) {
      T* const sum = o.Add(y);
      this->Of(k).add_rms_norm(sum, o.Add(y, Near<T>()), o.Add(rstd, kNearFloat), o.Add(x), o.Add(w),
                               Gain::kWeight, 1e-5f, rows, cols);
    });
  }
}

TYPED_TEST(CudaEmulated, RmsNormBackward) {
  using T = TypeParam;
  for (const auto [n, h] : kExtents) {
    const int64_t rows = n, cols = h;
    const auto x = Random<T>(n * h, 1), w = Random<T>(h, 2), dy = Random<T>(n * h, 3),
               dx = Random<T>(n * h, 4);
    const auto rstd = Random<float>(n, 5), dw = Random<float>(h, 6);
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(::testing::Message() << n << " x " << h << (accumulate ? ", accumulated" : ""));
      Check([&](const Kernels& k, Operands& o) {
        this->Of(k).rms_norm_backward(
            o.Add(dx, Near<T>(1e-4)), o.Add(dw, kNearFloat), o.Add(dy), o.Add(x), o.Add(rstd), o.Add(w),
            accumulate ? Gain::kOnePlusWeight : Gain::kWeight, accumulate, rows, cols);
      });
    }
    SCOPED_TRACE(::testing::Message() << n << " x " << h << ", over dy");
    Check([&](const Kernels& k, Operands& o) {
      T* in_place = o.Add(dy, Near<T>(1e-4));
      this->Of(k).rms_norm_backward(in_place, o.Add(dw, kNearFloat), in_place, o.Add(x), o.Add(rstd),
                                    o.Add(w), Gain::kNone, false, rows, cols);
    });
  }
}

TYPED_TEST(CudaEmulated, NormsOfRowsThatDoNotFitInRegisters) {
  using T = TypeParam;
  const int64_t n = 2, h = 4 * 512 * (16 / static_cast<int64_t>(sizeof(T))) + 24;
  const auto x = Random<T>(n * h, 1), w = Random<T>(h, 2), dy = Random<T>(n * h, 3), dx = Random<T>(n * h, 4);
  const std::vector<float> rstd = {0.5f, 2.0f}, dw = Random<float>(h, 6);
  Check([&](const Kernels& k, Operands& o) {
    this->Of(k).rms_norm(o.Add(dy, Near<T>()), o.Add(rstd, kNearFloat), o.Add(x), o.Add(w), Gain::kWeight,
                         1e-5f, n, h);
  });
  Check([&](const Kernels& k, Operands& o) {
    T* const sum = o.Add(dx);
    this->Of(k).add_rms_norm(sum, o.Add(dy, Near<T>()), o.Add(rstd, kNearFloat), o.Add(x), o.Add(w),
                             Gain::kWeight, 1e-5f, n, h);
  });
  Check([&](const Kernels& k, Operands& o) {
    this->Of(k).rms_norm_backward(o.Add(dx, Near<T>(1e-4)), o.Add(dw, kNearFloat), o.Add(dy), o.Add(x),
                                  o.Add(rstd), o.Add(w), Gain::kWeight, true, n, h);
  });
}

// Several slices of wide rows, and slices that the workspace alone limits: once each, for an emulated thread
// is slow.
TYPED_TEST(CudaEmulated, WeightGradientOfANormOverManySlices) {
  using T = TypeParam;
  const std::vector<double> workspace = cuda::emulated_workspace;
  const int64_t wide = 2 * 512 * (16 / static_cast<int64_t>(sizeof(T))) + 24;
  struct Case {
    int64_t n, h;
    size_t doubles;  // of the workspace
  };
  for (const auto& [n, h, doubles] :
       {Case{19, wide, workspace.size()}, Case{70, 37, workspace.size()}, Case{70, 37, 37}}) {  // two slices
    cuda::emulated_workspace.resize(doubles);
    const auto x = Random<T>(n * h, 1), w = Random<T>(h, 2), dy = Random<T>(n * h, 3);
    const auto rstd = Random<float>(n, 5);
    std::vector<T> dx(dy.size()), expected_dx(dy.size());
    std::vector<float> dw = Random<float>(h, 6), expected_dw = dw;
    this->Of(EmulatedCudaTable())
        .rms_norm_backward(dx.data(), dw.data(), dy.data(), x.data(), rstd.data(), w.data(), Gain::kWeight,
                           false, n, h);
    this->Of(CpuTable(0))
        .rms_norm_backward(expected_dx.data(), expected_dw.data(), dy.data(), x.data(), rstd.data(), w.data(),
                           Gain::kWeight, false, n, h);
    for (size_t i = 0; i < dw.size(); ++i)
      ASSERT_NEAR(dw[i], expected_dw[i], 1e-4) << n << " x " << h << ", " << doubles << ", column " << i;
    for (size_t i = 0; i < dx.size(); ++i) ASSERT_NEAR(AsFloat(dx[i]), AsFloat(expected_dx[i]), 0.05) << i;
  }
  cuda::emulated_workspace = workspace;
}

TYPED_TEST(CudaEmulated, LayerNorm) {
  using T = TypeParam;
  const Extent wider = {
      2, 4 * 512 * (16 / static_cast<int64_t>(sizeof(T))) + 24};  // wider than the registers hold
  for (const auto [n, h] : {Extent{1, 1}, Extent{3, 3}, Extent{5, 37}, Extent{20, 264}, wider}) {
    const int64_t rows = n, cols = h;
    const auto x = Random<T>(n * h, 1), w = Random<T>(h, 2), bias = Random<T>(h, 3), dy = Random<T>(n * h, 4),
               y = Random<T>(n * h, 5);
    const auto mean = Random<float>(n, 6), rstd = Random<float>(n, 7), dw = Random<float>(h, 8);
    for (const bool has_bias : {false, true}) {
      if (h > 1000 && !has_bias) continue;  // an emulated thread is slow
      SCOPED_TRACE(::testing::Message() << n << " x " << h << (has_bias ? ", with a bias" : ""));
      const Gain gain = has_bias ? Gain::kOnePlusWeight : Gain::kWeight;
      Check([&](const Kernels& k, Operands& o) {
        this->Of(k).layer_norm(o.Add(y, Near<T>()), o.Add(mean, kNearFloat), o.Add(rstd, kNearFloat),
                               o.Add(x), o.Add(w), has_bias ? o.Add(bias) : nullptr, gain, 1e-5f, rows, cols);
      });
      Check([&](const Kernels& k, Operands& o) {
        this->Of(k).layer_norm_backward(o.Add(y, Near<T>(1e-4)), o.Add(dw, {1e-4, 2e-5}),
                                        has_bias ? o.Add(dw, kNearFloat) : nullptr, o.Add(dy), o.Add(x),
                                        o.Add(mean), o.Add(rstd), o.Add(w), gain, has_bias, rows, cols);
      });
    }
    if (h > 1000) continue;
    SCOPED_TRACE(::testing::Message() << n << " x " << h << ", over dy, without a gain");
    Check([&](const Kernels& k, Operands& o) {
      T* const in_place = o.Add(dy, Near<T>(1e-4));
      this->Of(k).layer_norm_backward(in_place, o.Add(dw), o.Add(dw, kNearFloat), in_place, o.Add(x),
                                      o.Add(mean), o.Add(rstd), o.Add(w), Gain::kNone, false, rows, cols);
    });
  }
}

TYPED_TEST(CudaEmulated, RmsNormHeads) {
  using T = TypeParam;
  struct HeadsShape {
    int64_t n, heads, d, y_stride, x_stride;
  };
  // One element, an odd number, one lane per head, half a warp, a whole warp, two units per lane, and heads
  // that are too wide for a warp.
  for (const HeadsShape& s :
       {HeadsShape{1, 1, 1, 1, 1}, HeadsShape{5, 3, 7, 24, 23}, HeadsShape{9, 70, 8, 560, 560},
        HeadsShape{20, 3, 64, 192, 256}, HeadsShape{3, 5, 128, 648, 640}, HeadsShape{2, 3, 256, 800, 768},
        HeadsShape{2, 2, 520, 1048, 1040}}) {
    const auto x = Random<T>(s.n * s.x_stride, 1), w = Random<T>(s.d, 2), y = Random<T>(s.n * s.y_stride, 3),
               dy = Random<T>(s.n * s.y_stride, 4);
    const auto rstd = Random<float>(s.n * s.heads, 5), dw = Random<float>(s.d, 6);
    for (const Gain gain : {Gain::kWeight, Gain::kOnePlusWeight, Gain::kNone}) {
      SCOPED_TRACE(::testing::Message() << s.n << " rows, " << s.heads << " heads of " << s.d << ", gain "
                                        << static_cast<int>(gain));
      Check([&](const Kernels& k, Operands& o) {
        this->Of(k).rms_norm_heads(o.Add(y, Near<T>()), o.Add(rstd, kNearFloat), o.Add(x), o.Add(w), gain,
                                   1e-5f, s.n, s.heads, s.d, s.y_stride, s.x_stride);
      });
      Check([&](const Kernels& k, Operands& o) {
        this->Of(k).rms_norm_heads_backward(o.Add(y, Near<T>(1e-4)), o.Add(dw, {1e-4, 2e-5}), o.Add(dy),
                                            o.Add(x), o.Add(rstd), o.Add(w), gain, s.n, s.heads, s.d,
                                            s.y_stride, s.x_stride);
      });
    }
    SCOPED_TRACE(::testing::Message() << s.n << " rows, " << s.heads << " heads of " << s.d << ", over dy");
    Check([&](const Kernels& k, Operands& o) {
      T* const in_place = o.Add(dy, Near<T>(1e-4));
      this->Of(k).rms_norm_heads_backward(in_place, o.Add(dw, {1e-4, 2e-5}), in_place, o.Add(x), o.Add(rstd),
                                          o.Add(w), Gain::kWeight, s.n, s.heads, s.d, s.y_stride, s.x_stride);
    });
  }
}

// Sums over rows: several slices, the most slices, columns in pieces where the workspace is small.
TYPED_TEST(CudaEmulated, BiasAndItsGradient) {
  using T = TypeParam;
  const std::vector<double> workspace = cuda::emulated_workspace;
  for (const size_t doubles : {workspace.size(), size_t{512}}) {
    cuda::emulated_workspace.resize(doubles);
    for (const auto [n, h] :
         {Extent{1, 1}, Extent{9, 37}, Extent{600, 8}, Extent{300, 520}, Extent{257, 261}}) {
      SCOPED_TRACE(::testing::Message() << n << " x " << h << ", workspace of " << doubles);
      const int64_t rows = n, cols = h;
      const auto dy = Random<T>(n * h, 1), bias = Random<T>(h, 2);
      const auto gradient = Random<float>(h, 3);
      Check([&](const Kernels& k, Operands& o) {
        this->Of(k).bias_gradient(o.Add(gradient, {2e-5, 2e-5}), o.Add(dy), rows, cols);
      });
      if (doubles != workspace.size()) continue;
      Check([&](const Kernels& k, Operands& o) { this->Of(k).add_bias(o.Add(dy), o.Add(bias), rows, cols); });
    }
  }
  cuda::emulated_workspace = workspace;
  const int64_t n = 64 * 256 + 7, cols = 3;  // a 65th slice would begin
  const auto dy = Random<T>(n * cols, 1);
  const std::vector<float> zeros(cols);
  std::vector<float> gradient(cols);
  this->Of(EmulatedCudaTable()).bias_gradient(gradient.data(), dy.data(), n, cols);
  for (int64_t j = 0; j < cols; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += AsFloat(dy[static_cast<size_t>(i * cols + j)]);
    EXPECT_NEAR(gradient[static_cast<size_t>(j)], sum, 1e-3);
  }
}

TYPED_TEST(CudaEmulated, Rope) {
  using T = TypeParam;
  struct RopeShape {
    int64_t n, heads, d, stride;
  };
  const int64_t positions = 9;
  for (const RopeShape& shape :
       {RopeShape{1, 1, 2, 2}, RopeShape{3, 2, 8, 16}, RopeShape{5, 3, 16, 56}, RopeShape{2, 5, 64, 335},
        RopeShape{140, 1, 6, 7}, RopeShape{2, 3, 7, 23}, RopeShape{2, 33, 128, 4224}}) {
    const auto [n, heads, d, stride] = shape;
    const auto x = Random<T>(n * stride, 1);
    const auto cos = Random<float>(positions * (d / 2), 2), sin = Random<float>(positions * (d / 2), 3);
    const auto at = RandomIndices(n, 4, positions);
    for (const float sign : {1.0f, -1.0f}) {
      SCOPED_TRACE(::testing::Message()
                   << n << " rows, " << heads << " heads of " << d << ", stride " << stride);
      Check([&](const Kernels& k, Operands& o) {
        this->Of(k).rope(o.Add(x, Near<T>()), o.Add(at), o.Add(cos), o.Add(sin), sign, RopePairs::kHalves,
                         shape.n, shape.heads, shape.d, /*rotated=*/shape.d, shape.stride);
      });
    }
  }
}

TYPED_TEST(CudaEmulated, PartialRope) {
  using T = TypeParam;
  struct RopeShape {
    int64_t n, heads, d, rotated, stride;
  };
  const int64_t positions = 9;
  for (const RopeShape& s :
       {RopeShape{1, 1, 2, 2, 2}, RopeShape{3, 2, 7, 6, 16}, RopeShape{5, 3, 32, 16, 96},
        RopeShape{2, 5, 80, 32, 400}, RopeShape{140, 1, 6, 4, 7}, RopeShape{2, 33, 64, 64, 2112}}) {
    const auto x = Random<T>(s.n * s.stride, 1);
    const auto cos = Random<float>(positions * (s.rotated / 2), 2),
               sin = Random<float>(positions * (s.rotated / 2), 3);
    const auto at = RandomIndices(s.n, 4, positions);
    for (const RopePairs pairs : {RopePairs::kHalves, RopePairs::kNeighbors}) {
      SCOPED_TRACE(::testing::Message() << s.n << " rows, " << s.heads << " heads of " << s.d << ", "
                                        << s.rotated << " of which turn, stride " << s.stride);
      Check([&](const Kernels& k, Operands& o) {
        this->Of(k).rope(o.Add(x, Near<T>()), o.Add(at), o.Add(cos), o.Add(sin), -1, pairs, s.n, s.heads, s.d,
                         s.rotated, s.stride);
      });
    }
  }
}

TYPED_TEST(CudaEmulated, JoinHeads) {
  using T = TypeParam;
  struct HeadsShape {
    int64_t n, heads, kv_heads, d;
  };
  const int64_t positions = 9;
  for (const HeadsShape& s :
       {HeadsShape{1, 1, 1, 2}, HeadsShape{3, 2, 1, 8}, HeadsShape{5, 4, 2, 16}, HeadsShape{140, 1, 1, 6},
        HeadsShape{2, 6, 3, 80}, HeadsShape{2, 33, 11, 128}}) {
    SCOPED_TRACE(::testing::Message()
                 << s.n << " rows, " << s.heads << " and " << s.kv_heads << " heads of " << s.d);
    const auto dq = Random<T>(s.n * s.heads * s.d, 1), dk = Random<T>(s.n * s.kv_heads * s.d, 2),
               dv = Random<T>(s.n * s.kv_heads * s.d, 3);
    const auto cos = Random<float>(positions * (s.d / 2), 4), sin = Random<float>(positions * (s.d / 2), 5);
    const std::vector<T> out(static_cast<size_t>(s.n * (s.heads + 2 * s.kv_heads) * s.d));
    const auto at = RandomIndices(s.n, 6, positions);
    Check([&](const Kernels& k, Operands& o) {
      this->Of(k).join_heads(o.Add(out, Near<T>()), o.Add(dq), o.Add(dk), o.Add(dv), o.Add(at), o.Add(cos),
                             o.Add(sin), s.n, s.heads, s.kv_heads, s.d);
    });
  }
}

TYPED_TEST(CudaEmulated, SwiGlu) {
  using T = TypeParam;
  for (const auto [n, f] : kExtents) {
    SCOPED_TRACE(::testing::Message() << n << " x " << f);
    const int64_t rows = n, cols = f;
    const auto gate_up = Random<T>(n * 2 * f, 1, 4), dy = Random<T>(n * f, 2), out = Random<T>(n * f, 3),
               dgate_up = Random<T>(n * 2 * f, 4);
    Check([&](const Kernels& k, Operands& o) {
      this->Of(k).gated_activation(o.Add(out, Near<T>()), o.Add(gate_up), Activation::kSiLU, rows, cols);
    });
    Check([&](const Kernels& k, Operands& o) {
      this->Of(k).gated_activation_backward(o.Add(dgate_up, Near<T>(1e-4)), o.Add(dy), o.Add(gate_up),
                                            Activation::kSiLU, rows, cols);
    });
    Check([&](const Kernels& k, Operands& o) {
      T* in_place = o.Add(gate_up, Near<T>(1e-4));
      this->Of(k).gated_activation_backward(in_place, o.Add(dy), in_place, Activation::kSiLU, rows, cols);
    });
  }
}

constexpr Activation kActivations[] = {Activation::kSiLU, Activation::kGelu, Activation::kGeluTanh,
                                       Activation::kRelu, Activation::kReluSquared};

TYPED_TEST(CudaEmulated, GatedActivations) {
  using T = TypeParam;
  for (const auto [n, f] : {Extent{1, 1}, Extent{5, 37}, Extent{70, 64}, Extent{1, 2052}}) {
    const int64_t rows = n, cols = f;
    const auto gate_up = Random<T>(n * 2 * f, 1, 2), dy = Random<T>(n * f, 2), out = Random<T>(n * f, 3),
               dgate_up = Random<T>(n * 2 * f, 4);
    for (const Activation activation : kActivations) {
      SCOPED_TRACE(::testing::Message()
                   << n << " x " << f << ", activation " << static_cast<int>(activation));
      Check([&](const Kernels& k, Operands& o) {
        this->Of(k).gated_activation(o.Add(out, Near<T>()), o.Add(gate_up), activation, rows, cols);
      });
      Check([&](const Kernels& k, Operands& o) {
        this->Of(k).gated_activation_backward(o.Add(dgate_up, Near<T>(1e-4)), o.Add(dy), o.Add(gate_up),
                                              activation, rows, cols);
      });
      Check([&](const Kernels& k, Operands& o) {
        T* const in_place = o.Add(gate_up, Near<T>(1e-4));
        this->Of(k).gated_activation_backward(in_place, o.Add(dy), in_place, activation, rows, cols);
      });
    }
  }
}

TYPED_TEST(CudaEmulated, Activations) {
  using T = TypeParam;
  for (const int64_t count : {1, 37, 4096, 9001}) {
    const auto x = Random<T>(count, 1, 2), dy = Random<T>(count, 2), out = Random<T>(count, 3);
    for (const Activation activation : kActivations) {
      SCOPED_TRACE(::testing::Message() << count << ", activation " << static_cast<int>(activation));
      Check([&](const Kernels& k, Operands& o) {
        this->Of(k).activation(o.Add(out, Near<T>()), o.Add(x), activation, count);
      });
      Check([&](const Kernels& k, Operands& o) {
        T* const in_place = o.Add(x, Near<T>());
        this->Of(k).activation(in_place, in_place, activation, count);
      });
      Check([&](const Kernels& k, Operands& o) {
        this->Of(k).activation_backward(o.Add(out, Near<T>()), o.Add(dy), o.Add(x), activation, count);
      });
      Check([&](const Kernels& k, Operands& o) {
        T* const in_place = o.Add(x, Near<T>());
        this->Of(k).activation_backward(in_place, o.Add(dy), in_place, activation, count);
      });
    }
  }
}

TYPED_TEST(CudaEmulated, SwiGluOfLargeGatesIsFinite) {
  using T = TypeParam;
  const std::vector<float> extremes = {200, -200, 90, -90, 1e30f, -1e30f, 0, -0.0f};
  std::vector<T> gate_up(16), out(8), dgate_up(16), dy(8);
  std::vector<float> both = extremes;
  both.insert(both.end(), 8, 1.0f);
  this->Of(CpuTable(0)).round(gate_up.data(), both.data(), 16);
  this->Of(CpuTable(0)).round(dy.data(), both.data() + 8, 8);
  this->Of(EmulatedCudaTable()).gated_activation(out.data(), gate_up.data(), Activation::kSiLU, 1, 8);
  this->Of(EmulatedCudaTable())
      .gated_activation_backward(dgate_up.data(), dy.data(), gate_up.data(), Activation::kSiLU, 1, 8);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(AsFloat(out[i]), extremes[i] > 0 ? AsFloat(gate_up[i]) : 0, 1e-6);
    EXPECT_NEAR(AsFloat(dgate_up[i]), extremes[i] > 0 ? 1 : (extremes[i] < 0 ? 0 : 0.5), 1e-6);
    EXPECT_NEAR(AsFloat(dgate_up[8 + i]), extremes[i] > 0 ? AsFloat(gate_up[i]) : 0, 1e-6);
  }
}

// Repeated tokens are added in their order: the same bits as the CPU's.
TYPED_TEST(CudaEmulated, Embedding) {
  using T = TypeParam;
  struct EmbeddingShape {
    int64_t n, h, vocab;
  };
  for (const EmbeddingShape& shape :
       {EmbeddingShape{1, 1, 1}, EmbeddingShape{5, 37, 3}, EmbeddingShape{40, 64, 7},
        EmbeddingShape{130, 8, 500}, EmbeddingShape{1300, 4, 5}, EmbeddingShape{3, 1032, 2}}) {
    SCOPED_TRACE(::testing::Message() << shape.n << " tokens of " << shape.vocab << ", h = " << shape.h);
    const auto table = Random<T>(shape.vocab * shape.h, 1), rows = Random<T>(shape.n * shape.h, 2);
    const auto gradient = Random<float>(shape.vocab * shape.h, 3);
    const auto tokens = RandomIndices(shape.n, 4, static_cast<uint64_t>(shape.vocab));
    Check([&](const Kernels& k, Operands& o) {
      this->Of(k).embedding(o.Add(rows), o.Add(table), o.Add(tokens), shape.n, shape.h);
    });
    Check([&](const Kernels& k, Operands& o) {
      this->Of(k).embedding_backward(o.Add(gradient), o.Add(rows), o.Add(tokens), shape.n, shape.h);
    });
  }
}

// Chunks of 1024 tokens, most of which have a given token not at all; in one piece, and in pieces of two
// chunks.
TYPED_TEST(CudaEmulated, GradientOfAnEmbeddingOverManyChunks) {
  using T = TypeParam;
  const int64_t n = 2100, vocab = 1500;
  const auto rows = Random<T>(n, 2);
  const auto gradient = Random<float>(vocab, 3);
  const auto tokens = RandomIndices(n, 4, static_cast<uint64_t>(vocab));
  std::vector<float> expected = gradient;
  this->Of(CpuTable(0)).embedding_backward(expected.data(), rows.data(), tokens.data(), n, 1);
  const std::vector<double> workspace = cuda::emulated_workspace;
  for (const size_t doubles : {workspace.size(), 2 * 2048 / sizeof(double)}) {
    cuda::emulated_workspace.resize(doubles);
    std::vector<float> sums = gradient;
    this->Of(EmulatedCudaTable()).embedding_backward(sums.data(), rows.data(), tokens.data(), n, 1);
    EXPECT_EQ(sums, expected) << "workspace of " << doubles;
  }
  cuda::emulated_workspace = workspace;
}

TYPED_TEST(CudaEmulated, CrossEntropy) {
  using T = TypeParam;
  const std::vector<double> workspace = cuda::emulated_workspace;
  for (const size_t doubles : {workspace.size(), size_t{4}}) {  // rows in pieces of four
    cuda::emulated_workspace.resize(doubles);
    for (const auto [n, vocab] : {Extent{1, 1}, Extent{3, 3}, Extent{9, 37}, Extent{7, 264}, Extent{2, 5003},
                                  Extent{300, 4}, Extent{70, 520}}) {
      const int64_t rows = n, cols = vocab;
      const auto logits = Random<T>(n * vocab, 1, 4);
      const auto targets = RandomIndices(n, 2, static_cast<uint64_t>(vocab));
      std::vector<uint8_t> mask(static_cast<size_t>(n), 1);
      for (size_t i = 2; i < mask.size(); i += 3) mask[i] = 0;
      for (const auto& [gradient, cap] :
           {std::pair(false, 0.0f), std::pair(true, 0.0f), std::pair(false, 5.0f), std::pair(true, 5.0f)}) {
        if (cap != 0 && doubles != workspace.size()) continue;
        SCOPED_TRACE(::testing::Message()
                     << n << " x " << vocab << ", workspace of " << doubles << ", cap " << cap);
        const float of_logits = cap;
        const bool with_gradient = gradient;
        const Tolerance near = with_gradient ? Near<T>(1e-6) : kExact;
        Check([&](const Kernels& k, Operands& o) {
          this->Of(k).cross_entropy(o.Add(std::vector<double>{0.25}, {1e-5, 2e-6}), o.Add(logits, near),
                                    o.Add(targets), o.Add(mask), 1e-2f, of_logits,
                                    with_gradient ? o.Add(std::vector<float>{0.125f}) : nullptr, rows, cols);
        });
      }
    }
  }
  cuda::emulated_workspace = workspace;
}

TYPED_TEST(CudaEmulated, CrossEntropyOfExtremeLogits) {
  using T = TypeParam;
  const float infinity = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  const int64_t vocab = 70;
  struct Row {
    float fill;
    float at_40;
    double loss;  // of target 40
  };
  // A vocabulary of which all but one logit are excluded; large logits; and what must not be hidden.
  for (const Row& row : {Row{-infinity, 2, 0}, Row{3e4f, 3e4f, std::log(70.0)},
                         Row{-3e4f, -3e4f, std::log(70.0)}, Row{0.5f, nan, nan}, Row{-infinity, nan, nan},
                         Row{0.5f, infinity, nan}, Row{-infinity, -infinity, nan}}) {
    SCOPED_TRACE(::testing::Message() << row.fill << ", " << row.at_40);
    std::vector<float> values(vocab, row.fill);
    values[40] = row.at_40;
    std::vector<T> logits(vocab);
    this->Of(CpuTable(0)).round(logits.data(), values.data(), vocab);
    const int32_t target = 40;
    const float kOne = 1;
    const uint8_t mask = 1;
    double loss = 0;
    this->Of(EmulatedCudaTable()).cross_entropy(&loss, logits.data(), &target, &mask, 0, 0, &kOne, 1, vocab);
    if (std::isnan(row.loss)) {
      EXPECT_TRUE(std::isnan(loss)) << loss;
    } else {
      EXPECT_NEAR(loss, row.loss, row.fill == 3e4f || row.fill == -3e4f ? 4e-3 : 1e-6);
      for (const T& x : logits) EXPECT_TRUE(std::isfinite(AsFloat(x)));
    }
  }
}

constexpr UpdateOptions kOptions{.lr = 1e-2f,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.95f,
                                 .eps = 1e-8f,
                                 .momentum = 0.9f,
                                 .weight_decay = 0.1f,
                                 .factor = 0.5f,
                                 .bias_correction1 = 0.19f,
                                 .bias_correction2 = 0.0975f};

constexpr Tolerance kNear = {1e-6, 1e-6}, kNearCopy = {1e-6, 1e-2};  // an fp32 bit may round the other way

TEST(CudaEmulatedF32, Updates) {
  for (int rule = 0; rule < kNumUpdateRules; ++rule) {
    for (const int64_t count : {1, 7, 1024, 5001, 12 * 1024}) {
      SCOPED_TRACE(testing::Message() << "rule " << rule << ", " << count << " elements");
      const auto master = Random<float>(count, 1), m = Random<float>(count, 2, 0.1f),
                 g = Random<float>(count, 4);
      std::vector<float> v;  // not negative; of rules with one state it stays as it is
      for (float x : Random<float>(count, 3, 0.1f)) v.push_back(x * x);
      for (const bool copies : {false, true}) {
        Check([&](const Kernels& k, Operands& o) {
          float* const weights = o.Add(master, kNear);
          UpdateRange ranges[2] = {{.master = weights,
                                    .states = {o.Add(m, kNear), o.Add(v, kNear)},
                                    .gradient = o.Add(g),
                                    .count = count / 3,
                                    .decays = true}};
          if (copies) ranges[0].copy = o.Add(std::vector<Bf>(static_cast<size_t>(count)), kNearCopy);
          // The rest begins where a unit does not.
          ranges[1] = ranges[0];
          ranges[1].count = count - ranges[0].count;
          ranges[1].decays = false;
          const auto skip = [&](void* data, size_t bytes) -> void* {
            return data == nullptr ? nullptr
                                   : static_cast<char*>(data) + static_cast<size_t>(ranges[0].count) * bytes;
          };
          ranges[1].master = skip(weights, sizeof(float));
          for (void*& state : ranges[1].states) state = skip(state, sizeof(float));
          ranges[1].gradient = static_cast<const float*>(ranges[0].gradient) + ranges[0].count;
          ranges[1].copy = skip(ranges[0].copy, sizeof(Bf));
          const UpdateOptions* const options = o.Add(std::vector<UpdateOptions>{kOptions});
          k.masters_f32.For(static_cast<UpdateRule>(rule))(ranges, 2, options);
        });
      }
    }
  }
}

// A result that the two compute with another last bit can fall on the other side of a chance.
TEST(CudaEmulatedF32, UpdatesOfMastersInBf16) {
  for (int rule = 0; rule < kNumUpdateRules; ++rule) {
    for (const int64_t count : {1, 7, 1024, 5001, 12 * 1024}) {
      SCOPED_TRACE(testing::Message() << "rule " << rule << ", " << count << " elements");
      const auto master = Random<Bf>(count, 1);
      const auto m = Random<float>(count, 2, 0.1f), g = Random<float>(count, 4);
      std::vector<float> v;
      for (float x : Random<float>(count, 3, 0.1f)) v.push_back(x * x);
      Check([&](const Kernels& k, Operands& o) {
        const UpdateRange range{.master = o.Add(master, kNearCopy),
                                .states = {o.Add(m, kNear), o.Add(v, kNear)},
                                .gradient = o.Add(g),
                                .count = count,
                                .number = 3,
                                .decays = true};
        UpdateOptions options = kOptions;
        options.rounding_key = 5;
        k.masters_bf16.For(static_cast<UpdateRule>(rule))(&range, 1,
                                                          o.Add(std::vector<UpdateOptions>{options}));
      });
    }
  }
}

TEST(CudaEmulatedF32, SumOfSquares) {
  for (const int64_t count :
       {1, 5, 1000, 70001, 4300000}) {  // the last: more than the blocks take in one step
    SCOPED_TRACE(count);
    const auto x = Random<float>(count, 1);
    const auto call = [&](const Kernels& k, Operands& o) {
      double* const sum = o.Add(std::vector<double>{0.5}, {1e-12, 1e-7});
      const float* const gradient = o.Add(x);
      const UpdateRange ranges[2] = {{.gradient = gradient, .count = count / 3},
                                     {.gradient = gradient + count / 3, .count = count - count / 3}};
      k.masters_f32.sum_of_squares(sum, ranges, 2);
    };
    if (count < 100000) {
      Check(call);
      continue;
    }
    double sum = 0.5, expected = 0.5;
    const UpdateRange range{.gradient = x.data(), .count = count};
    EmulatedCudaTable().masters_f32.sum_of_squares(&sum, &range, 1);
    CpuTable(0).masters_f32.sum_of_squares(&expected, &range, 1);
    EXPECT_NEAR(sum / expected, 1, 1e-12);
  }
}

TEST(CudaEmulatedF32, SumInOrder) {
  const std::vector<double> workspace = cuda::emulated_workspace;
  cuda::emulated_workspace.resize(8);  // 16 floats: pieces, where there are more inputs than a launch takes
  for (const int num_inputs : {1, 2, 3, 256, 257, 600}) {
    const int64_t count = num_inputs > 100 ? 37 : 1030;
    std::vector<std::vector<float>> values;
    for (int i = 0; i < num_inputs; ++i) values.push_back(Random<float>(count, static_cast<uint64_t>(i)));
    for (const int out_is : {-1, 0, num_inputs - 1}) {
      SCOPED_TRACE(::testing::Message() << num_inputs << " inputs, out is " << out_is);
      const auto call = [&](const Kernels& k, Operands& o) {
        std::vector<const float*> inputs;
        float* out = out_is < 0 ? o.Add(values[0]) : nullptr;
        for (int i = 0; i < num_inputs; ++i) {
          float* input = o.Add(values[static_cast<size_t>(i)]);
          if (i == out_is) out = input;
          inputs.push_back(input);
        }
        k.sum_in_order(out, inputs.data(), num_inputs, count);
      };
      if (num_inputs < 10) {
        Check(call);
        continue;
      }
      Operands expected(0), emulated(0);
      call(CpuTable(0), expected);
      call(EmulatedCudaTable(), emulated);
      expected.ExpectGuardsWhole();
      emulated.ExpectGuardsWhole();
      emulated.ExpectSameBits(expected);
    }
  }
  cuda::emulated_workspace = workspace;
}

TEST(CudaEmulatedF32, TheTableIsComplete) {
  const Kernels& table = EmulatedCudaTable();
  EXPECT_STREQ(table.name, "cuda");
  // Of pointers alone after the name: none is null but attention's, which is LibTorch's on a GPU, and fp64's.
  const auto* pointers = reinterpret_cast<const unsigned char*>(&table);
  const std::set<const void*> attention = {&table.f32.attention, &table.f32.attention_backward,
                                           &table.bf16.attention, &table.bf16.attention_backward};
  const auto is_within = [](const void* entry, const auto& part) {
    return std::less_equal<>()(static_cast<const void*>(&part), entry) &&
           std::less<>()(entry, static_cast<const void*>(&part + 1));
  };
  for (size_t at = 0; at < sizeof(Kernels); at += sizeof(void*)) {
    const void* const entry = pointers + at;
    void* pointer;
    std::memcpy(&pointer, entry, sizeof(pointer));
    const bool is_of_double = is_within(entry, table.f64) || is_within(entry, table.masters_f64);
    EXPECT_EQ(pointer == nullptr, is_of_double || attention.contains(entry))
        << "entry " << at / sizeof(void*);
  }
}

}  // namespace
}  // namespace trainctl::kernels
