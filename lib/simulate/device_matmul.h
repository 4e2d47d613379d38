// Estimates the time of matrix products on a device. The model considers:
//
//   - tiles, which the compute units process in waves, and the fill and drain of each tile's loop,
//   - the slower loads of rows that do not start at a multiple of 16 bytes,
//   - a split of the inner dimension if there are too few tiles,
//   - the bytes of the operands and the result.
//
// All constants come from published measurements; their sources are in device_matmul.cc. The constants of the
// tiles are the same for all devices, and the sustained rates depend on the device. Pure functions;
// thread-safe.
#pragma once

#include <cstdint>

#include "cluster/catalogue.h"

namespace trainctl::simulate {

// The format in which the operands of a product are stored and multiplied.
enum class Precision : uint8_t { kFp32, kFp16, kBf16, kFp8, kMxfp8, kNvfp4 };

// Returns the rate, in FLOP/s, that the inner loop of the best kernels sustains when the products fill the
// device.
double SustainedFlops(const cluster::Device& device, Precision precision);

// A product [rows, inner] x [inner, columns].
struct MatmulShape {
  double batch = 1;  // number of products of this shape in one kernel launch
  double rows = 0;
  double inner = 0;
  double columns = 0;
  // Bytes read and written per element of the result. For example, 8 if the product is added to an fp32
  // result.
  double result_bytes = 2;
};

// Returns the time of one kernel launch in seconds, at least kKernelSeconds (device_kernels.h). Returns 0 if
// a dimension is 0.
double MatmulSeconds(const cluster::Device& device, Precision precision, const MatmulShape& shape);

}  // namespace trainctl::simulate
