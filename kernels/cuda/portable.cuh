// The language features that the kernels use and that differ between compilers. nvcc compiles the kernels for
// the device. A test compiles the same sources with the host's compiler and an emulator that provides
// threadIdx, __syncthreads and the like (tests/unit/kernels/cuda_emulator.h). All differences between the two
// are in this file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#define TRAINCTL_UNROLL _Pragma("unroll")
#define TRAINCTL_UNROLL_BY_4 _Pragma("unroll 4")
#define TRAINCTL_NO_UNROLL _Pragma("unroll 1")
// Declares an array in the memory that a block's threads share.
#define TRAINCTL_SHARED(type, name, count) __shared__ type name[count]

namespace trainctl::kernels::cuda {

using Bits64 = uint2;
using Bits128 = uint4;
__device__ inline Bits128 Load128(const void* p) { return *static_cast<const Bits128*>(p); }
__device__ inline Bits64 Load64(const void* p) { return *static_cast<const Bits64*>(p); }
// Stores use the intrinsic: the compiler splits a plain wide store if another path stores only one of its
// words.
__device__ inline void Store64(void* p, const Bits64& bits) { __stwb(static_cast<Bits64*>(p), bits); }
__device__ inline void Store128(void* p, const Bits128& bits) { __stwb(static_cast<Bits128*>(p), bits); }

}  // namespace trainctl::kernels::cuda

#elif defined(TRAINCTL_CUDA_EMULATOR)

#define TRAINCTL_UNROLL
#define TRAINCTL_UNROLL_BY_4
#define TRAINCTL_NO_UNROLL
#define TRAINCTL_SHARED(type, name, count) \
  type* const name = ::trainctl::cuda_emulator::SharedArray<type>(count, __FILE__, __LINE__)

namespace trainctl::kernels::cuda {

struct Bits64 {
  uint32_t x, y;
};
struct Bits128 {
  uint32_t x, y, z, w;
};
template <typename Bits>
Bits LoadBits(const void* p) {
  ::trainctl::cuda_emulator::RequireAligned(p, sizeof(Bits));
  Bits bits;
  std::memcpy(&bits, p, sizeof(bits));
  return bits;
}
template <typename Bits>
void StoreBits(void* p, const Bits& bits) {
  ::trainctl::cuda_emulator::RequireAligned(p, sizeof(Bits));
  std::memcpy(p, &bits, sizeof(bits));
}
inline Bits64 Load64(const void* p) { return LoadBits<Bits64>(p); }
inline Bits128 Load128(const void* p) { return LoadBits<Bits128>(p); }
inline void Store64(void* p, const Bits64& bits) { StoreBits(p, bits); }
inline void Store128(void* p, const Bits128& bits) { StoreBits(p, bits); }

}  // namespace trainctl::kernels::cuda

#else
#error "These sources are for nvcc, or for a test that includes the emulator first."
#endif
