// Products of bf16 matrices on CPUs that LibTorch has no fast ones for.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainctl::nn {

// oneDNN, with which LibTorch multiplies bf16 on x86, needs AVX-512. Without it a product is a plain loop,
// about a hundred times slower than in fp32.
bool LacksFastBf16Products();

// out = a b, [m, k] x [k, n], of bf16 on a CPU, each by rows or by columns: tile by tile turned into fp32,
// multiplied and summed there, and rounded once. The same bits with any number of threads, each of which
// takes 768 KiB of scratch.
void MultiplyInTiles(at::Tensor& out, const at::Tensor& a, const at::Tensor& b);

}  // namespace trainctl::nn
