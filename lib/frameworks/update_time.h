// The end of a step: norm and clipping of the gradients, the optimizer, on the device or in host memory.
// Pure; thread safe.
#pragma once

#include "frameworks/workload.h"

namespace trainctl::frameworks {

double UpdateSeconds(const Workload& workload);

// Bytes/s between a device and its host, in one direction.
double HostLinkBytesPerSecond(const cluster::Device& device);

}  // namespace trainctl::frameworks
