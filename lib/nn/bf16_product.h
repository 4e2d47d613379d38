// Products of bf16 matrices on CPUs for which LibTorch has no fast implementation.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainctl::nn {

// Whether LibTorch's bf16 products are slow on this CPU. On x86 LibTorch uses oneDNN, which needs AVX-512 for
// them. Without it, a product is a plain loop that is about a hundred times slower than in fp32. False on
// other architectures.
bool LacksFastBf16Products();

// Computes out = a b for bf16 CPU matrices [m, k] x [k, n], each stored by rows or by columns. Converts tiles
// to fp32, multiplies and sums them in fp32, and rounds each result once. The bits do not depend on the
// number of threads. Each thread uses 768 KiB of scratch memory.
void MultiplyInTiles(at::Tensor& out, const at::Tensor& a, const at::Tensor& b);

}  // namespace trainctl::nn
