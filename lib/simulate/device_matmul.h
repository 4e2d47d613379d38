// Time of matrix products: whole tiles in waves over the compute units, the fill and drain of each tile's
// loop, rows that do not start at a whole memory transaction, a split of the inner dimension where there are
// too few tiles, and the bytes of operands and result. Published constants only, shared by all devices. Pure;
// thread safe.
#pragma once

#include <cstdint>

#include "cluster/catalogue.h"

namespace trainctl::simulate {

// What the operands of a product are stored and multiplied in.
enum class Precision : uint8_t { kFp32, kFp16, kBf16, kFp8, kMxfp8, kNvfp4 };

// FLOP/s of products of `precision` that fill the device: what the inner loop of the best kernels sustains.
double SustainedFlops(const cluster::Device& device, Precision precision);

// What else is to be known of a product.
struct MatmulShape {
  double batch = 1;  // products of one shape in one launch
  double rows = 0;
  double inner = 0;
  double columns = 0;
  double result_bytes = 2;  // read and written per element of the result: 8 for one that is added to in fp32
};

double MatmulSeconds(const cluster::Device& device, Precision precision, const MatmulShape& shape);

}  // namespace trainctl::simulate
