// Time of matrix products: whole tiles in waves over the compute units, the fill and drain of each tile's
// loop, rows that do not start at a whole memory transaction, a split of the inner dimension where there are
// too few tiles, and the bytes of operands and result. Published constants only, shared by all devices. Pure;
// thread safe.
#pragma once

#include <cstdint>

#include "cluster/catalogue.h"
#include "pricing/workload.h"

namespace trainctl::pricing {

// No kernel is shorter on the device.
inline constexpr double kKernelSeconds = 5e-6;

// What decides which kernels a device has.
enum class Generation : uint8_t { kAmpere, kHopper, kBlackwell, kOther };  // kAmpere: and before
Generation GenerationOf(const cluster::Device& device);

// Of a large copy, measured where somebody published it.
double BytesPerSecond(const cluster::Device& device);

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

}  // namespace trainctl::pricing
