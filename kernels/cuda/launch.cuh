// Host functions that start kernels: shapes of grids, the launch itself, and the scratch memory of
// reductions. runtime.cu implements them with CUDA's runtime. The tests' emulator has its own implementation.
#pragma once

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/units.cuh"
#include "kernels/kernels.h"

namespace trainctl::kernels::cuda {

struct Shape {
  int64_t blocks_x = 1;
  int64_t blocks_y = 1;
  int threads = kWarp;
};

// Starts `kernel` on the calling thread's current stream. A failure is kept under `name` (TakeCudaError).
template <typename... Parameters, typename... Arguments>
void Launch(const char* name, void (*kernel)(Parameters...), const Shape& shape, Arguments... arguments);

int NumMultiprocessors();

// Scratch memory on the device for one user at a time. The calling thread holds it, as a lock, while this
// object lives. On the device, kernels that use it run one after the other, even on different streams.
class Workspace {
 public:
  Workspace();
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_;
  int64_t bytes_;
};

// ---- shapes -------------------------------------------------------------------------------------

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t Clamp(int64_t x, int64_t low, int64_t high) {
  return x < low ? low : (x > high ? high : x);
}

inline constexpr int kFlatThreads = 256;
inline constexpr int kThreadsPerMultiprocessor = 2048;

// Returns a number of threads for one unit per thread: whole warps, at most `most`.
inline int ThreadsFor(int64_t units, int most) {
  return static_cast<int>(Clamp(CeilDiv(units, kWarp) * kWarp, kWarp, most));
}

// A grid whose threads step over the units of an array. It has at most as many blocks as can be resident at
// the same time.
inline Shape FlatShape(int64_t units) {
  const int64_t resident = int64_t{NumMultiprocessors()} * (kThreadsPerMultiprocessor / kFlatThreads);
  return {.blocks_x = Clamp(CeilDiv(units, kFlatThreads), 1, resident), .threads = kFlatThreads};
}

// A grid whose blocks step over rows, and the threads of a block over the units of a row. It has at most
// twice as many blocks as can be resident (up to 32 per multiprocessor), so that a block that ends early
// leaves no gap.
inline Shape RowShape(int64_t rows, int64_t units, int most_threads) {
  const int threads = ThreadsFor(units, most_threads);
  const int64_t resident = int64_t{NumMultiprocessors()} * Clamp(kThreadsPerMultiprocessor / threads, 1, 32);
  return {.blocks_x = Clamp(rows, 1, 2 * resident), .threads = threads};
}

inline bool IsAligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
template <typename... Pointers>
bool AreAligned(const Pointers*... pointers) {
  return (... && IsAligned(pointers));
}

}  // namespace trainctl::kernels::cuda

#if defined(__CUDACC__)
#include "kernels/cuda/launch_cuda.cuh"
#endif
