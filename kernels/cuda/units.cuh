// Element types, and the unit in which threads read and write: 16 bytes, which are 4 fp32 or 8 bf16 elements.
// If kAligned says that the address allows it, one instruction moves a unit; otherwise elements move one by
// one. The same elements form a unit in both cases, so sums over units have the same bits.
#pragma once

#include "kernels/cuda/portable.cuh"

namespace trainctl::kernels::cuda {

struct BF16 {
  uint16_t bits;
};

template <typename T>
inline constexpr int kWidth = 16 / static_cast<int>(sizeof(T));

// ---- one element --------------------------------------------------------------------------------

// Rounds to bf16, to nearest even. Returns the upper half of the fp32; NaN stays NaN.
__device__ inline uint32_t RoundToBF16(float x) {
#if defined(__CUDA_ARCH__)
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
#else
  const uint32_t bits = __float_as_uint(x);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40;
  return (bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded;
#endif
}

// Rounds two values and packs them into one word, with `low` in its lower half.
__device__ inline uint32_t RoundPairToBF16(float low, float high) {
#if defined(__CUDA_ARCH__)
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
#else
  return RoundToBF16(low) | (RoundToBF16(high) << 16);
#endif
}

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(BF16 x) { return __uint_as_float(uint32_t{x.bits} << 16); }

// ---- a unit -------------------------------------------------------------------------------------

// The elements of a unit, as in memory.
template <typename T>
struct Unit {
  uint32_t word[4];
};

__device__ inline void ToFloats(const Unit<float>& unit, float (&values)[4]) {
  TRAINCTL_UNROLL
  for (int i = 0; i < 4; ++i) values[i] = __uint_as_float(unit.word[i]);
}
__device__ inline void ToFloats(const Unit<BF16>& unit, float (&values)[8]) {
  TRAINCTL_UNROLL
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = __uint_as_float(unit.word[i] << 16);
    values[2 * i + 1] = __uint_as_float(unit.word[i] & 0xffff0000u);
  }
}

__device__ inline Unit<float> ToUnit(const float (&values)[4]) {
  Unit<float> unit;
  TRAINCTL_UNROLL
  for (int i = 0; i < 4; ++i) unit.word[i] = __float_as_uint(values[i]);
  return unit;
}
__device__ inline Unit<BF16> ToUnit(const float (&values)[8]) {
  Unit<BF16> unit;
  TRAINCTL_UNROLL
  for (int i = 0; i < 4; ++i) unit.word[i] = RoundPairToBF16(values[2 * i], values[2 * i + 1]);
  return unit;
}

__device__ inline void SetRaw(Unit<float>& unit, int i, float x) { unit.word[i] = __float_as_uint(x); }
__device__ inline void SetRaw(Unit<BF16>& unit, int i, BF16 x) {
  unit.word[i / 2] |= uint32_t{x.bits} << (16 * (i % 2));
}
__device__ inline float GetRaw(const Unit<float>& unit, int i) { return __uint_as_float(unit.word[i]); }
__device__ inline BF16 GetRaw(const Unit<BF16>& unit, int i) {
  return {static_cast<uint16_t>(unit.word[i / 2] >> (16 * (i % 2)))};
}

// ---- memory -------------------------------------------------------------------------------------

// Returns the number of elements from `at` to the end of a row of `length`, for the functions below. An
// aligned row consists of whole units; the result is then a constant that the compiler knows.
template <bool kAligned, typename T>
__device__ inline int64_t Left(int64_t length, int64_t at) {
  return kAligned ? kWidth<T> : length - at;
}

// Loads the first `count` elements at p, or a whole unit if count is at least kWidth. The other elements are
// 0.
template <bool kAligned, typename T>
__device__ inline Unit<T> LoadUnit(const T* p, int64_t count) {
  if (kAligned && count >= kWidth<T>) {
    const Bits128 bits = Load128(p);
    return {{bits.x, bits.y, bits.z, bits.w}};
  }
  Unit<T> unit = {{0, 0, 0, 0}};
  TRAINCTL_UNROLL
  for (int i = 0; i < kWidth<T>; ++i) {
    if (i < count) SetRaw(unit, i, p[i]);
  }
  return unit;
}

template <bool kAligned, typename T>
__device__ inline void StoreUnit(T* p, const Unit<T>& unit, int64_t count) {
  if (kAligned && count >= kWidth<T>) {
    Store128(p, {unit.word[0], unit.word[1], unit.word[2], unit.word[3]});
    return;
  }
  TRAINCTL_UNROLL
  for (int i = 0; i < kWidth<T>; ++i) {
    if (i < count) p[i] = GetRaw(unit, i);
  }
}

// Half a unit of bf16, which has as many elements as a unit of fp32. Neighboring lanes then access
// neighboring memory in arrays of both types.
struct HalfUnit {
  uint32_t word[2];
};

template <bool kAligned>
__device__ inline HalfUnit LoadHalf(const BF16* p, int64_t count) {
  if (kAligned && count >= 4) {
    const Bits64 bits = Load64(p);
    return {{bits.x, bits.y}};
  }
  HalfUnit half = {{0, 0}};
  TRAINCTL_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (i < count) half.word[i / 2] |= uint32_t{p[i].bits} << (16 * (i % 2));
  }
  return half;
}

template <bool kAligned>
__device__ inline void StoreHalf(BF16* p, const HalfUnit& half, int64_t count) {
  if (kAligned && count >= 4) {
    Store64(p, {half.word[0], half.word[1]});
    return;
  }
  TRAINCTL_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (i < count) p[i] = {static_cast<uint16_t>(half.word[i / 2] >> (16 * (i % 2)))};
  }
}

// The same as floats. Each function moves a unit of T, as many fp32 elements as a unit of bf16 has, or half a
// unit of bf16.
template <bool kAligned, typename T>
__device__ inline void LoadFloats(const T* p, int64_t count, float (&values)[kWidth<T>]) {
  ToFloats(LoadUnit<kAligned>(p, count), values);
}
template <bool kAligned, typename T>
__device__ inline void StoreFloats(T* p, int64_t count, const float (&values)[kWidth<T>]) {
  StoreUnit<kAligned>(p, ToUnit(values), count);
}
template <bool kAligned>
__device__ inline void LoadFloats(const float* p, int64_t count, float (&values)[8]) {
  float half[4];
  LoadFloats<kAligned>(p, count, half);
  TRAINCTL_UNROLL
  for (int i = 0; i < 4; ++i) values[i] = half[i];
  LoadFloats<kAligned>(p + 4, count - 4, half);
  TRAINCTL_UNROLL
  for (int i = 0; i < 4; ++i) values[4 + i] = half[i];
}
template <bool kAligned>
__device__ inline void StoreFloats(float* p, int64_t count, const float (&values)[8]) {
  const float low[4] = {values[0], values[1], values[2], values[3]};
  const float high[4] = {values[4], values[5], values[6], values[7]};
  StoreFloats<kAligned>(p, count, low);
  StoreFloats<kAligned>(p + 4, count - 4, high);
}

template <bool kAligned>
__device__ inline void LoadFloats(const BF16* p, int64_t count, float (&values)[4]) {
  const HalfUnit half = LoadHalf<kAligned>(p, count);
  TRAINCTL_UNROLL
  for (int i = 0; i < 2; ++i) {
    values[2 * i] = __uint_as_float(half.word[i] << 16);
    values[2 * i + 1] = __uint_as_float(half.word[i] & 0xffff0000u);
  }
}
template <bool kAligned>
__device__ inline void StoreFloats(BF16* p, int64_t count, const float (&values)[4]) {
  StoreHalf<kAligned>(p, {{RoundPairToBF16(values[0], values[1]), RoundPairToBF16(values[2], values[3])}},
                      count);
}

}  // namespace trainctl::kernels::cuda
