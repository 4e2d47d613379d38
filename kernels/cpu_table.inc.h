// The CPU kernels, compiled once per instruction set; TRAINCTL_ISA is its name. Part one contains the
// functions, part two the table. Loops are written so that the compiler vectorizes them. `omp simd` allows
// the compiler to reorder the sums of its loop; the order is the same in every run.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/kernels.h"

namespace trainctl::kernels {
namespace TRAINCTL_ISA {
namespace {

// ---- element types ------------------------------------------------------------------------------

struct BF16 {
  uint16_t bits;
};

// The type in which elements of type T are computed and summed (AccumulatorOf).
template <typename T>
using RealOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

inline double Widen(double x) { return x; }
inline float Widen(float x) { return x; }
inline float Widen(BF16 x) {
  const uint32_t bits = uint32_t{x.bits} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

template <typename T>
T Round(RealOf<T> x) {
  return x;
}
template <>
inline BF16 Round<BF16>(float x) {  // round to nearest even; NaN stays NaN
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40;
  return {static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded)};
}

template <typename Value>
struct BitsOf {
  using Type = uint32_t;
};

// exp of a float, for loops that the compiler vectorizes, or of a vector: 2^k * p(r) with |r| <= ln2/2 and a
// polynomial p of degree 6 (error below 2 ulp). Inputs are clamped to the normal range, so very negative ones
// give about 1e-38, not 0.
template <typename Value>
inline Value Exp(Value x) {
  const Value zero = {};
  x = x < -87.0f ? zero - 87.0f : x;
  x = x > 88.0f ? zero + 88.0f : x;
  const Value shifted = x * 1.44269504f + 12582912.0f;  // adds 1.5 * 2^23: the low bits are round(x / ln2)
  const Value k = shifted - 12582912.0f;
  const Value r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
  Value p = zero + 1.3888889e-3f;
  p = p * r + 8.3333333e-3f;
  p = p * r + 4.1666667e-2f;
  p = p * r + 1.6666667e-1f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // Uses the bits of `shifted` because a conversion of k to an integer is undefined for NaN. The low bits of
  // 1.5 * 2^23 are 0.
  typename BitsOf<Value>::Type bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits + 127) << 23;
  Value scale;
  std::memcpy(&scale, &bits, sizeof(scale));
  return p * scale;
}

// fp64 does not have to be fast.
inline double Exp(double x) { return std::exp(x); }

// tanh of a float or of a vector, with a relative error below 4e-7. Near 0 it is a polynomial in x^2 that was
// fitted to tanh(x) / x.
template <typename Value>
inline Value Tanh(Value x) {
  const Value zero = {};
  const Value a = x < 0.0f ? -x : x;
  const Value z = x * x;
  Value p = zero - 5.652355259e-3f;
  p = p * z + 2.058348897e-2f;
  p = p * z - 5.371848498e-2f;
  p = p * z + 0.1333109113f;
  p = p * z - 0.3333325872f;
  p = p * z + 1.0f;
  const Value far = 1.0f - 2.0f / (Exp(2.0f * a) + 1.0f);
  return a < 0.625f ? p * x : (x < 0.0f ? -far : far);
}
inline double Tanh(double x) { return std::tanh(x); }

#include "kernels/cpu_attention.inc.h"

inline double NormalBelow(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752440); }

#define TRAINCTL_ACTIVATION inline
#include "kernels/activations.inc.h"
#undef TRAINCTL_ACTIVATION

// ---- part one: the functions --------------------------------------------------------------------

template <typename T>
struct Functions {
  using Real = RealOf<T>;

  static void Embedding(void* out_raw, const void* table_raw, const int32_t* tokens, int64_t n, int64_t h) {
    T* out = static_cast<T*>(out_raw);
    const T* table = static_cast<const T*>(table_raw);
    for (int64_t i = 0; i < n; ++i)
      std::memcpy(out + i * h, table + tokens[i] * h, static_cast<size_t>(h) * sizeof(T));
  }

  static void EmbeddingBackward(void* gradient, const void* dout_raw, const int32_t* tokens, int64_t n,
                                int64_t h) {
    const T* dout = static_cast<const T*>(dout_raw);
    for (int64_t i = 0; i < n; ++i) {
      Real* row = static_cast<Real*>(gradient) + tokens[i] * h;
#pragma omp simd
      for (int64_t j = 0; j < h; ++j) row[j] += Widen(dout[i * h + j]);
    }
  }

  template <Gain kGain>
  static Real GainAt(const T* w, int64_t j) {
    if constexpr (kGain == Gain::kNone)
      return 1;
    else
      return kGain == Gain::kOnePlusWeight ? Real{1} + Widen(w[j]) : Widen(w[j]);
  }

  // Calls `function` with the gain as a compile-time constant, so that loops contain no branch.
  template <typename Function>
  static void WithGain(Gain gain, const Function& function) {
    if (gain == Gain::kWeight) return function(std::integral_constant<Gain, Gain::kWeight>());
    if (gain == Gain::kOnePlusWeight) return function(std::integral_constant<Gain, Gain::kOnePlusWeight>());
    function(std::integral_constant<Gain, Gain::kNone>());
  }

  // Normalizes one row and returns its rstd.
  template <Gain kGain>
  static Real NormRow(T* y, const T* x, const T* w, float eps, int64_t h) {
    Real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < h; ++j) sum += Widen(x[j]) * Widen(x[j]);
    const Real r = Real{1} / std::sqrt(sum / static_cast<Real>(h) + eps);
#pragma omp simd
    for (int64_t j = 0; j < h; ++j) y[j] = Round<T>(Widen(x[j]) * r * GainAt<kGain>(w, j));
    return r;
  }

  static void RmsNorm(void* y, void* rstd, const void* x, const void* w, Gain gain, float eps, int64_t n,
                      int64_t h) {
    RmsNormHeads(y, rstd, x, w, gain, eps, n, /*heads=*/1, h, h, h);
  }

  static void AddRmsNorm(void* sum, void* y, void* rstd, const void* x, const void* w, Gain gain, float eps,
                         int64_t n, int64_t h) {
    Add(sum, x, n * h);
    RmsNorm(y, rstd, sum, w, gain, eps, n, h);
  }

  template <Gain kGain>
  static void NormRowBackward(T* dx, Real* dw, const T* dy, const T* x, Real r, const T* w, bool accumulate,
                              int64_t h) {
    Real dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t j = 0; j < h; ++j) {
      const Real scaled = Widen(dy[j]) * Widen(x[j]);
      dot += scaled * GainAt<kGain>(w, j);
    }
    const Real c = dot * r * r / static_cast<Real>(h);
    if constexpr (kGain != Gain::kNone) {
#pragma omp simd
      for (int64_t j = 0; j < h; ++j) dw[j] += Widen(dy[j]) * Widen(x[j]) * r;
    }
    if (accumulate) {
#pragma omp simd
      for (int64_t j = 0; j < h; ++j)
        dx[j] = Round<T>(Widen(dx[j]) + r * (Widen(dy[j]) * GainAt<kGain>(w, j) - Widen(x[j]) * c));
    } else {
#pragma omp simd
      for (int64_t j = 0; j < h; ++j)
        dx[j] = Round<T>(r * (Widen(dy[j]) * GainAt<kGain>(w, j) - Widen(x[j]) * c));
    }
  }

  static void RmsNormBackward(void* dx, void* dw, const void* dy, const void* x, const void* rstd,
                              const void* w, Gain gain, bool accumulate, int64_t n, int64_t h) {
    NormBackward(dx, dw, dy, x, rstd, w, gain, accumulate, n, /*heads=*/1, h, h, h);
  }

  static void RmsNormHeads(void* y, void* rstd, const void* x, const void* w, Gain gain, float eps, int64_t n,
                           int64_t heads, int64_t d, int64_t y_stride, int64_t x_stride) {
    WithGain(gain, [&](auto constant) {
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t head = 0; head < heads; ++head) {
          static_cast<Real*>(rstd)[i * heads + head] = NormRow<constant()>(
              static_cast<T*>(y) + i * y_stride + head * d,
              static_cast<const T*>(x) + i * x_stride + head * d, static_cast<const T*>(w), eps, d);
        }
      }
    });
  }

  static void RmsNormHeadsBackward(void* dx, void* dw, const void* dy, const void* x, const void* rstd,
                                   const void* w, Gain gain, int64_t n, int64_t heads, int64_t d,
                                   int64_t dy_stride, int64_t x_stride) {
    NormBackward(dx, dw, dy, x, rstd, w, gain, /*accumulate=*/false, n, heads, d, dy_stride, x_stride);
  }

  static void NormBackward(void* dx, void* dw, const void* dy, const void* x, const void* rstd, const void* w,
                           Gain gain, bool accumulate, int64_t n, int64_t heads, int64_t d, int64_t dy_stride,
                           int64_t x_stride) {
    WithGain(gain, [&](auto constant) {
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t head = 0; head < heads; ++head) {
          const int64_t at = i * dy_stride + head * d;
          NormRowBackward<constant()>(
              static_cast<T*>(dx) + at, static_cast<Real*>(dw), static_cast<const T*>(dy) + at,
              static_cast<const T*>(x) + i * x_stride + head * d,
              static_cast<const Real*>(rstd)[i * heads + head], static_cast<const T*>(w), accumulate, d);
        }
      }
    });
  }

  template <Gain kGain>
  static void LayerNormRow(T* y, Real* mean, Real* rstd, const T* x, const T* w, const T* bias, float eps,
                           int64_t h) {
    Real sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < h; ++j) sum += Widen(x[j]);
    const Real m = sum / static_cast<Real>(h);
#pragma omp simd reduction(+ : squares)
    for (int64_t j = 0; j < h; ++j) squares += (Widen(x[j]) - m) * (Widen(x[j]) - m);
    const Real r = Real{1} / std::sqrt(squares / static_cast<Real>(h) + eps);
    *mean = m;
    *rstd = r;
    if (bias == nullptr) {
#pragma omp simd
      for (int64_t j = 0; j < h; ++j) y[j] = Round<T>((Widen(x[j]) - m) * r * GainAt<kGain>(w, j));
    } else {
#pragma omp simd
      for (int64_t j = 0; j < h; ++j)
        y[j] = Round<T>((Widen(x[j]) - m) * r * GainAt<kGain>(w, j) + Widen(bias[j]));
    }
  }

  static void LayerNorm(void* y, void* mean, void* rstd, const void* x, const void* w, const void* bias,
                        Gain gain, float eps, int64_t n, int64_t h) {
    WithGain(gain, [&](auto constant) {
      for (int64_t i = 0; i < n; ++i) {
        LayerNormRow<constant()>(static_cast<T*>(y) + i * h, static_cast<Real*>(mean) + i,
                                 static_cast<Real*>(rstd) + i, static_cast<const T*>(x) + i * h,
                                 static_cast<const T*>(w), static_cast<const T*>(bias), eps, h);
      }
    });
  }

  template <Gain kGain>
  static void LayerNormRowBackward(T* dx, Real* dw, const T* dy, const T* x, Real mean, Real r, const T* w,
                                   bool accumulate, int64_t h) {
    Real dot = 0, sum = 0;
#pragma omp simd reduction(+ : dot, sum)
    for (int64_t j = 0; j < h; ++j) {
      const Real scaled = Widen(dy[j]) * GainAt<kGain>(w, j);
      sum += scaled;
      dot += scaled * (Widen(x[j]) - mean);
    }
    const Real c = dot * r * r / static_cast<Real>(h);
    const Real shift = sum / static_cast<Real>(h);
    if constexpr (kGain != Gain::kNone) {
#pragma omp simd
      for (int64_t j = 0; j < h; ++j) dw[j] += Widen(dy[j]) * (Widen(x[j]) - mean) * r;
    }
#pragma omp simd
    for (int64_t j = 0; j < h; ++j) {
      const Real gradient = Widen(dy[j]) * GainAt<kGain>(w, j) - shift - (Widen(x[j]) - mean) * c;
      dx[j] = Round<T>((accumulate ? Widen(dx[j]) : Real{0}) + r * gradient);
    }
  }

  static void LayerNormBackward(void* dx, void* dw, void* dbias, const void* dy, const void* x,
                                const void* mean, const void* rstd, const void* w, Gain gain, bool accumulate,
                                int64_t n, int64_t h) {
    if (dbias != nullptr) BiasGradient(dbias, dy, n, h);
    WithGain(gain, [&](auto constant) {
      for (int64_t i = 0; i < n; ++i) {
        LayerNormRowBackward<constant()>(static_cast<T*>(dx) + i * h, static_cast<Real*>(dw),
                                         static_cast<const T*>(dy) + i * h, static_cast<const T*>(x) + i * h,
                                         static_cast<const Real*>(mean)[i], static_cast<const Real*>(rstd)[i],
                                         static_cast<const T*>(w), accumulate, h);
      }
    });
  }

  static void TurnHalves(T* head, const float* c, const float* s, float sign, int64_t half) {
    T* low = head;
    T* high = head + half;
#pragma omp simd
    for (int64_t j = 0; j < half; ++j) {
      const Real a = Widen(low[j]);
      const Real b = Widen(high[j]);
      low[j] = Round<T>(a * c[j] - sign * b * s[j]);
      high[j] = Round<T>(b * c[j] + sign * a * s[j]);
    }
  }

  static void TurnNeighbors(T* head, const float* c, const float* s, float sign, int64_t half) {
#pragma omp simd
    for (int64_t j = 0; j < half; ++j) {
      const Real a = Widen(head[2 * j]);
      const Real b = Widen(head[2 * j + 1]);
      head[2 * j] = Round<T>(a * c[j] - sign * b * s[j]);
      head[2 * j + 1] = Round<T>(b * c[j] + sign * a * s[j]);
    }
  }

  static void Rope(void* x_raw, const int32_t* positions, const float* cos, const float* sin, float sign,
                   RopePairs pairs, int64_t n, int64_t heads, int64_t d, int64_t rotated,
                   int64_t row_stride) {
    const int64_t half = rotated / 2;
    for (int64_t i = 0; i < n; ++i) {
      T* row = static_cast<T*>(x_raw) + i * row_stride;
      const float* c = cos + positions[i] * half;
      const float* s = sin + positions[i] * half;
      for (int64_t head = 0; head < heads; ++head) {
        if (pairs == RopePairs::kHalves) {
          TurnHalves(row + head * d, c, s, sign, half);
        } else {
          TurnNeighbors(row + head * d, c, s, sign, half);
        }
      }
    }
  }

  static void JoinHeads(void* out, const void* dq, const void* dk, const void* dv, const int32_t* positions,
                        const float* cos, const float* sin, int64_t n, int64_t heads, int64_t kv_heads,
                        int64_t d) {
    const int64_t row = (heads + 2 * kv_heads) * d;
    for (int64_t i = 0; i < n; ++i) {
      T* to = static_cast<T*>(out) + i * row;
      const auto put = [&](const void* part, int64_t width) {
        std::memcpy(to, static_cast<const T*>(part) + i * width, static_cast<size_t>(width) * sizeof(T));
        to += width;
      };
      put(dq, heads * d);
      put(dk, kv_heads * d);
      put(dv, kv_heads * d);
    }
    Rope(out, positions, cos, sin, -1, RopePairs::kHalves, n, heads + kv_heads, d, /*rotated=*/d, row);
  }

  static void GatedActivation(void* out_raw, const void* gate_up_raw, Activation activation, int64_t n,
                              int64_t f) {
    WithActivation(activation, [&](auto constant) {
      for (int64_t i = 0; i < n; ++i) {
        T* out = static_cast<T*>(out_raw) + i * f;
        const T* gate = static_cast<const T*>(gate_up_raw) + i * 2 * f;
        const T* up = gate + f;
#pragma omp simd
        for (int64_t j = 0; j < f; ++j)
          out[j] = Round<T>(Activate<decltype(constant)::kValue>(Widen(gate[j])) * Widen(up[j]));
      }
    });
  }

  struct GatedGradient {
    Real gate, up;
  };

  // Writes differentiate(gate, up, dy), the gradients of the gate and of its factor, for all elements.
  template <typename Function>
  static void ForGatedGradients(void* dgate_up_raw, const void* dout_raw, const void* gate_up_raw, int64_t n,
                                int64_t f, const Function& differentiate) {
    for (int64_t i = 0; i < n; ++i) {
      const T* dout = static_cast<const T*>(dout_raw) + i * f;
      const T* gate = static_cast<const T*>(gate_up_raw) + i * 2 * f;
      const T* up = gate + f;
      T* dgate = static_cast<T*>(dgate_up_raw) + i * 2 * f;
      T* dup = dgate + f;
#pragma omp simd
      for (int64_t j = 0; j < f; ++j) {
        const GatedGradient gradient = differentiate(Widen(gate[j]), Widen(up[j]), Widen(dout[j]));
        dgate[j] = Round<T>(gradient.gate);
        dup[j] = Round<T>(gradient.up);
      }
    }
  }

  // Multiplies in another order than GatedActivationBackward would, and so rounds differently.
  static void SwiGluBackward(void* dgate_up, const void* dout, const void* gate_up, int64_t n, int64_t f) {
    ForGatedGradients(dgate_up, dout, gate_up, n, f, [](Real gate, Real up, Real dy) {
      const Real sigmoid = Real{1} / (Real{1} + Exp(-gate));
      return GatedGradient{dy * up * sigmoid * (Real{1} + gate * (Real{1} - sigmoid)), dy * gate * sigmoid};
    });
  }

  static void GatedActivationBackward(void* dgate_up, const void* dout, const void* gate_up,
                                      Activation activation, int64_t n, int64_t f) {
    if (activation == Activation::kSiLU) return SwiGluBackward(dgate_up, dout, gate_up, n, f);
    WithActivation(activation, [&](auto constant) {
      ForGatedGradients(dgate_up, dout, gate_up, n, f, [](Real gate, Real up, Real dy) {
        const auto [value, slope] = ActivateWithSlope<decltype(constant)::kValue>(gate);
        return GatedGradient{dy * up * slope, dy * value};
      });
    });
  }

  static void ActivateAll(void* out_raw, const void* x_raw, Activation activation, int64_t count) {
    T* out = static_cast<T*>(out_raw);
    const T* x = static_cast<const T*>(x_raw);
    WithActivation(activation, [&](auto constant) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i)
        out[i] = Round<T>(Activate<decltype(constant)::kValue>(Widen(x[i])));
    });
  }

  static void ActivationBackward(void* dx_raw, const void* dout_raw, const void* x_raw, Activation activation,
                                 int64_t count) {
    T* dx = static_cast<T*>(dx_raw);
    const T* dout = static_cast<const T*>(dout_raw);
    const T* x = static_cast<const T*>(x_raw);
    WithActivation(activation, [&](auto constant) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i)
        dx[i] = Round<T>(Widen(dout[i]) * ActivateWithSlope<decltype(constant)::kValue>(Widen(x[i])).slope);
    });
  }

  static void Scale(void* out_raw, const void* x_raw, float factor, int64_t count) {
    T* out = static_cast<T*>(out_raw);
    const T* x = static_cast<const T*>(x_raw);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) out[i] = Round<T>(Widen(x[i]) * factor);
  }

  static void Add(void* y_raw, const void* x_raw, int64_t count) {
    T* y = static_cast<T*>(y_raw);
    const T* x = static_cast<const T*>(x_raw);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) y[i] = Round<T>(Widen(y[i]) + Widen(x[i]));
  }

  static void AddBias(void* y_raw, const void* bias_raw, int64_t n, int64_t cols) {
    const T* bias = static_cast<const T*>(bias_raw);
    for (int64_t i = 0; i < n; ++i) {
      T* y = static_cast<T*>(y_raw) + i * cols;
#pragma omp simd
      for (int64_t j = 0; j < cols; ++j) y[j] = Round<T>(Widen(y[j]) + Widen(bias[j]));
    }
  }

  static void BiasGradient(void* gradient, const void* dy_raw, int64_t n, int64_t cols) {
    for (int64_t i = 0; i < n; ++i) Accumulate(gradient, static_cast<const T*>(dy_raw) + i * cols, cols);
  }

  static void Accumulate(void* sum_raw, const void* x_raw, int64_t count) {
    Real* sum = static_cast<Real*>(sum_raw);
    const T* x = static_cast<const T*>(x_raw);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) sum[i] += Widen(x[i]);
  }

  static void Assign(void* out_raw, const void* x_raw, int64_t count) {
    Real* out = static_cast<Real*>(out_raw);
    const T* x = static_cast<const T*>(x_raw);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) out[i] = Widen(x[i]);
  }

  static void RoundAll(void* out_raw, const void* x_raw, int64_t count) {
    T* out = static_cast<T*>(out_raw);
    const Real* x = static_cast<const Real*>(x_raw);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) out[i] = Round<T>(x[i]);
  }

  // Rows [n, vocab] of logits; `cap` is used only if kCapped.
  template <bool kCapped>
  static void CrossEntropyOf(double* loss, T* logits, const int32_t* targets, const uint8_t* mask,
                             float z_loss, Real cap, const float* scale_of_gradient, int64_t n,
                             int64_t vocab) {
    const bool want_gradient = scale_of_gradient != nullptr;
    const float scale = want_gradient ? *scale_of_gradient : 0;
    const auto capped = [&](Real x) { return kCapped ? cap * Tanh(x / cap) : x; };
    // The derivative of capped(), given its result x.
    const auto slope = [&](Real x) { return kCapped ? Real{1} - (x / cap) * (x / cap) : Real{1}; };
    for (int64_t i = 0; i < n; ++i) {
      T* row = logits + i * vocab;
      if (mask[i] == 0) {
        if (want_gradient) std::memset(static_cast<void*>(row), 0, static_cast<size_t>(vocab) * sizeof(T));
        continue;
      }
      Real maximum = -INFINITY;
#pragma omp simd reduction(max : maximum)
      for (int64_t j = 0; j < vocab; ++j) maximum = Widen(row[j]) > maximum ? Widen(row[j]) : maximum;
      maximum = capped(maximum);
      Real sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < vocab; ++j) sum += Exp(capped(Widen(row[j])) - maximum);
      const Real lse = maximum + std::log(sum);
      const Real target_logit = capped(Widen(row[targets[i]]));
      // The maximum may skip a NaN, but the sum of exponentials does not, so lse and the loss become NaN.
      *loss += static_cast<double>(lse - target_logit) + static_cast<double>(z_loss * lse * lse);
      if (!want_gradient) continue;
      const Real factor = scale * (Real{1} + Real{2} * z_loss * lse);
      if constexpr (kCapped) {
#pragma omp simd
        for (int64_t j = 0; j < vocab; ++j) {
          const Real logit = capped(Widen(row[j]));
          row[j] = Round<T>(Exp(logit - lse) * factor * slope(logit));
        }
      } else {
#pragma omp simd
        for (int64_t j = 0; j < vocab; ++j) row[j] = Round<T>(Exp(Widen(row[j]) - lse) * factor);
      }
      // The target's gradient is p - 1, computed from the logit that the loop above has not overwritten.
      if constexpr (kCapped) {
        row[targets[i]] = Round<T>((Exp(target_logit - lse) * factor - scale) * slope(target_logit));
      } else {
        row[targets[i]] = Round<T>(Exp(target_logit - lse) * factor - scale);
      }
    }
  }

  static void CrossEntropy(double* loss, void* logits, const int32_t* targets, const uint8_t* mask,
                           float z_loss, float cap, const float* scale, int64_t n, int64_t vocab) {
    if (cap == 0) {
      CrossEntropyOf<false>(loss, static_cast<T*>(logits), targets, mask, z_loss, 0, scale, n, vocab);
    } else {
      CrossEntropyOf<true>(loss, static_cast<T*>(logits), targets, mask, z_loss, cap, scale, n, vocab);
    }
  }

  static constexpr auto FusedAttention() -> decltype(TypedKernels::attention) {
    if constexpr (std::is_same_v<T, double>)
      return nullptr;
    else
      return Attention<T>;
  }
  static constexpr auto FusedAttentionBackward() -> decltype(TypedKernels::attention_backward) {
    if constexpr (std::is_same_v<T, double>)
      return nullptr;
    else
      return AttentionBackward<T>;
  }

  static constexpr TypedKernels Table() {
    return {.embedding = Embedding,
            .embedding_backward = EmbeddingBackward,
            .rms_norm = RmsNorm,
            .add_rms_norm = AddRmsNorm,
            .rms_norm_backward = RmsNormBackward,
            .rms_norm_heads = RmsNormHeads,
            .rms_norm_heads_backward = RmsNormHeadsBackward,
            .layer_norm = LayerNorm,
            .layer_norm_backward = LayerNormBackward,
            .rope = Rope,
            .join_heads = JoinHeads,
            .gated_activation = GatedActivation,
            .gated_activation_backward = GatedActivationBackward,
            .activation = ActivateAll,
            .activation_backward = ActivationBackward,
            .scale = Scale,
            .add = Add,
            .add_bias = AddBias,
            .bias_gradient = BiasGradient,
            .accumulate = Accumulate,
            .assign = Assign,
            .round = RoundAll,
            .cross_entropy = CrossEntropy,
            .attention = FusedAttention(),
            .attention_backward = FusedAttentionBackward()};
  }
};

#define TRAINCTL_RULE inline
#define TRAINCTL_MUL_ADD(a, b, c) ((a) * (b) + (c))
#define TRAINCTL_ADD_MUL(c, a, b) ((c) + (a) * (b))
#include "kernels/update_rules.inc.h"
#undef TRAINCTL_ADD_MUL
#undef TRAINCTL_MUL_ADD
#undef TRAINCTL_RULE

template <typename Rule>
struct Update {
  using Real = typename Rule::Element;

  static void Run(const UpdateRange* ranges, int num_ranges, const UpdateOptions* options) {
    if (std::isnan(options->factor)) return;
    for (int i = 0; i < num_ranges; ++i)
      RunOver(ranges[i], Rule(*options, ranges[i].decays), Real{options->factor});
  }

  static void RunOver(const UpdateRange& range, const Rule rule, const Real factor) {
    Real* const master = static_cast<Real*>(range.master);
    const Real* const gradient = static_cast<const Real*>(range.gradient);
    // If there is a copy, works in pieces that fit in the cache.
    const int64_t piece = range.copy == nullptr ? range.count : kPiece;
    for (int64_t begin = 0; begin < range.count; begin += piece) {
      const int64_t numel = range.count - begin < piece ? range.count - begin : piece;
      RunOver(master + begin, range.states.data(), begin, gradient + begin, rule, factor, numel,
              std::make_index_sequence<Rule::kNumStates>());
      if (range.copy != nullptr)
        Functions<BF16>::RoundAll(static_cast<BF16*>(range.copy) + begin, master + begin, numel);
    }
  }

  static constexpr int64_t kPiece = 4096;

  template <size_t... kStates>
  static void RunOver(Real* master, void* const* states, int64_t begin, const Real* gradient, const Rule rule,
                      const Real factor, int64_t count, std::index_sequence<kStates...>) {
    Real* const state[] = {static_cast<Real*>(states[kStates]) + begin...};
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) rule(master[i], gradient[i], factor, state[kStates][i]...);
  }
};

// Updates bf16 masters with stochastic rounding, in pieces that are converted to floats and back.
template <typename Rule>
struct UpdateByChance {
  using Floats = Update<Rule>;

  static void Run(const UpdateRange* ranges, int num_ranges, const UpdateOptions* options) {
    if (std::isnan(options->factor)) return;
    for (int i = 0; i < num_ranges; ++i) RunOver(ranges[i], *options);
  }

  static void RunOver(const UpdateRange& range, const UpdateOptions& options) {
    const Rule rule(options, range.decays);
    BF16* const master = static_cast<BF16*>(range.master);
    const float* const gradient = static_cast<const float*>(range.gradient);
    float piece[Floats::kPiece];
    for (int64_t begin = 0; begin < range.count; begin += Floats::kPiece) {
      const int64_t left = range.count - begin, numel = left < Floats::kPiece ? left : Floats::kPiece;
      Functions<BF16>::Assign(piece, master + begin, numel);
      Floats::RunOver(piece, range.states.data(), begin, gradient + begin, rule, options.factor, numel,
                      std::make_index_sequence<Rule::kNumStates>());
      const uint64_t number = range.number + static_cast<uint64_t>(begin);
#pragma omp simd
      for (int64_t i = 0; i < numel; ++i) {
        uint32_t bits;
        std::memcpy(&bits, &piece[i], sizeof(bits));
        const uint32_t chance = RoundingBits(options.rounding_key, number + static_cast<uint64_t>(i));
        master[begin + i].bits = static_cast<uint16_t>(RoundByChance(bits, chance));
      }
    }
  }
};

template <typename Real>
double SquaresOf(const Real* x, int64_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

template <typename Real>
void SumOfSquares(double* sum, const UpdateRange* ranges, int num_ranges) {
  for (int i = 0; i < num_ranges; ++i)
    *sum += SquaresOf(static_cast<const Real*>(ranges[i].gradient), ranges[i].count);
}

void SetClipFactor(float* factor, const double* loss, const double* squares, double clip_norm) {
  *factor = ClipFactor(*loss, *squares, clip_norm);
}

template <template <typename> typename UpdateBy, typename Real>
constexpr MasterKernels MasterTable() {
  return {.update = AllUpdates<UpdateBy, Real>(),
          .sum_of_squares = SumOfSquares<Real>,
          .clip_factor = SetClipFactor};
}

void SumInOrder(float* out, const float* const* inputs, int num_inputs, int64_t count) {
  if (num_inputs == 2) {
    const float* a = inputs[0];
    const float* b = inputs[1];
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    float sum = inputs[0][i];
    for (int k = 1; k < num_inputs; ++k) sum += inputs[k][i];
    out[i] = sum;
  }
}

}  // namespace

// ---- part two: the table ------------------------------------------------------------------------

#define TRAINCTL_STRINGIFY_INNER(x) #x
#define TRAINCTL_STRINGIFY(x) TRAINCTL_STRINGIFY_INNER(x)
const Kernels& Table() {
  static constexpr Kernels kTable = {.name = TRAINCTL_STRINGIFY(TRAINCTL_ISA),
                                     .f32 = Functions<float>::Table(),
                                     .bf16 = Functions<BF16>::Table(),
                                     .f64 = Functions<double>::Table(),
                                     .masters_f32 = MasterTable<Update, float>(),
                                     .masters_bf16 = MasterTable<UpdateByChance, float>(),
                                     .masters_f64 = MasterTable<Update, double>(),
                                     .sum_in_order = SumInOrder};
  return kTable;
}

}  // namespace TRAINCTL_ISA
}  // namespace trainctl::kernels
