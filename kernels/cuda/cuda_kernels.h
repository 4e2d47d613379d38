// The GPU's table of operators and the little that it needs from the plugin around it. No LibTorch and no
// CUDA header here: the plugin's C++ compiler reads this file.
//
// Every function of the table checks nothing (kernels.h: the caller owns the extents), launches on
// CurrentStream() and returns at once. What fails in a launch is kept for TakeError().
#pragma once

#include <cstddef>

#include "kernels/kernels.h"

struct CUstream_st;  // what cudaStream_t points to

namespace trainctl::kernels {

// Functions for devices of compute capability 8.0 and later.
const Kernels* CudaKernels();

// Prepares the calling thread's current device: once, before the first call of the table. 0, or a sentence in
// `reason`.
int InitCudaKernels(char* reason, size_t reason_bytes);

// The first error since the last call, of a launch or of a kernel that the device is known to have failed in;
// it does not wait for the device. 0 when there was none, else a sentence in `reason`. Not during a capture
// of the stream into a graph.
int TakeCudaError(char* reason, size_t reason_bytes);

// The stream that the calling thread's work goes to. The plugin defines it.
CUstream_st* CurrentCudaStream();

}  // namespace trainctl::kernels
