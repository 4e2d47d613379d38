// Time of one operator alone on a device: matrix products on the roofline in whole tiles and waves,
// attention by its kernel, memory-bound operators by the bytes that they move. Data-sheet and published
// constants only, shared by all devices and frameworks. Pure; thread safe.
#pragma once

#include "pricing/layer_work.h"
#include "pricing/workload.h"

namespace trainctl::pricing {

struct ForwardBackward {
  double forward = 0;   // seconds
  double backward = 0;  // of the input's and the weights' gradients together
};

// Of a large copy, measured where somebody published it.
double BytesPerSecond(const cluster::Device& device);

// A kernel that reads and writes `bytes` in all.
double ElementwiseSeconds(const cluster::Device& device, double bytes);

// A product of `batch` x [rows, inner] x [inner, columns] in the workload's precision.
double MatmulSeconds(const cluster::Device& device, Precision precision, double batch, double rows,
                     double inner, double columns);

// One row of a layer's table, with the kernels of the workload's framework.
ForwardBackward OperatorSeconds(const WorkItem& item, const Workload& workload);

}  // namespace trainctl::pricing
