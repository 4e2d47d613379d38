// The CUDA operators over the emulator: EmulatedCudaTable() is their table, for the host's memory. Included
// by one source file.
#pragma once

// clang-format off: the emulator comes before the sources that it brings the language for.
#include "cuda_emulator.h"
#include "kernels/cuda/launch.cuh"
// clang-format on

namespace trainctl::kernels::cuda {

// So few that loops over the grid do loop, and a workspace that can be made small.
inline int emulated_multiprocessors = 1;
inline std::vector<double> emulated_workspace(std::size_t{1} << 17);

inline int NumMultiprocessors() { return emulated_multiprocessors; }

inline Workspace::Workspace()
    : data_(emulated_workspace.data()),
      bytes_(static_cast<int64_t>(emulated_workspace.size() * sizeof(double))) {
  std::memset(data_, 0xff, static_cast<size_t>(bytes_));  // nothing is left there from the call before
}
inline Workspace::~Workspace() = default;

template <typename... Parameters, typename... Arguments>
void Launch(const char* name, void (*kernel)(Parameters...), const Shape& shape, Arguments... arguments) {
  cuda_emulator::Emulator::Get().Run(
      name, {static_cast<unsigned>(shape.blocks_x), static_cast<unsigned>(shape.blocks_y), 1},
      static_cast<unsigned>(shape.threads), [&] { kernel(arguments...); });
}

}  // namespace trainctl::kernels::cuda

// clang-format off
#include "kernels/cuda/activation.cu"
#include "kernels/cuda/bias.cu"
#include "kernels/cuda/cross_entropy.cu"
#include "kernels/cuda/elementwise.cu"
#include "kernels/cuda/embedding.cu"
#include "kernels/cuda/optimizer.cu"
#include "kernels/cuda/norm.cu"
#include "kernels/cuda/rope.cu"
// clang-format on

namespace trainctl::kernels {

const Kernels& EmulatedCudaTable() {
  static const Kernels table = cuda::MakeTable();
  return table;
}

}  // namespace trainctl::kernels
