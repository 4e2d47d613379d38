// The CUDA table over the emulator, for the host's memory (cuda_emulated_test.cc has the sources).
#pragma once

#include "kernels/kernels.h"

namespace trainctl::kernels {

const Kernels& EmulatedCudaTable();

}  // namespace trainctl::kernels
