// What the kernels need of the language they are written in. nvcc compiles them for the device; a test gives
// the same sources to the host's compiler, with an emulator that brings threadIdx, __syncthreads and the like
// (tests/unit/kernels/cuda_emulator.h). Whatever differs between the two is in this file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#define TRAINCTL_UNROLL _Pragma("unroll")
#define TRAINCTL_UNROLL_BY_4 _Pragma("unroll 4")
#define TRAINCTL_NO_UNROLL _Pragma("unroll 1")
// An array in the memory that a block's threads share.
#define TRAINCTL_SHARED(type, name, count) __shared__ type name[count]

namespace trainctl::kernels::cuda {

using Bits128 = uint4;
__device__ inline Bits128 Load128(const void* p) { return *static_cast<const Bits128*>(p); }
__device__ inline void Store128(void* p, const Bits128& bits) { *static_cast<Bits128*>(p) = bits; }

}  // namespace trainctl::kernels::cuda

#elif defined(TRAINCTL_CUDA_EMULATOR)

#define TRAINCTL_UNROLL
#define TRAINCTL_UNROLL_BY_4
#define TRAINCTL_NO_UNROLL
#define TRAINCTL_SHARED(type, name, count) \
  type* const name = ::trainctl::cuda_emulator::SharedArray<type>(count, __FILE__, __LINE__)

namespace trainctl::kernels::cuda {

struct Bits128 {
  uint32_t x, y, z, w;
};
inline Bits128 Load128(const void* p) {
  ::trainctl::cuda_emulator::RequireAligned(p, 16);
  Bits128 bits;
  std::memcpy(&bits, p, sizeof(bits));
  return bits;
}
inline void Store128(void* p, const Bits128& bits) {
  ::trainctl::cuda_emulator::RequireAligned(p, 16);
  std::memcpy(p, &bits, sizeof(bits));
}

}  // namespace trainctl::kernels::cuda

#else
#error "These sources are for nvcc, or for a test that includes the emulator first."
#endif
