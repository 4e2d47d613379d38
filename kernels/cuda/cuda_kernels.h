// The GPU's table of operators, and the functions that connect it to its plugin. This file includes neither
// LibTorch nor CUDA headers, because the plugin's C++ compiler reads it.
//
// The functions of the table check nothing (kernels.h: the caller guarantees the extents). They launch on
// CurrentCudaStream() and return at once. A failed launch is kept for TakeCudaError().
#pragma once

#include <cstddef>

#include "kernels/kernels.h"

struct CUstream_st;  // the type that cudaStream_t points to

namespace trainctl::kernels {

// Returns the table, for devices of compute capability 8.0 and later.
const Kernels* CudaKernels();

// Prepares the calling thread's current device. Call it once, before the first function of the table. Returns
// 0, or non-zero with a sentence in `reason`.
int InitCudaKernels(char* reason, size_t reason_bytes);

// Returns the first error since the last call: of a launch, or of a kernel whose failure the device has
// already reported. Does not wait for the device. Returns 0 if there was none, otherwise non-zero with a
// sentence in `reason`. Must not be called while the stream is captured into a graph.
int TakeCudaError(char* reason, size_t reason_bytes);

// Returns the stream for the calling thread's work. The plugin defines this function.
CUstream_st* CurrentCudaStream();

}  // namespace trainctl::kernels
