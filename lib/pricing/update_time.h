// The end of a step: norm and clipping of the gradients, the optimizer, on the device or in host memory; and
// activations that wait in host memory. Pure; thread safe.
#pragma once

#include "pricing/layer_time.h"
#include "pricing/workload.h"

namespace trainctl::pricing {

double UpdateSeconds(const Workload& workload);

// Bytes/s between a device and its host, in one direction.
double HostLinkBytesPerSecond(const cluster::Device& device);

// One micro-batch on the first pipeline rank: copies to the host beside the forward, back beside the
// backward; what they take beyond these passes.
double ActivationOffloadSeconds(const Workload& workload, const PassTimes& micro_batch);

}  // namespace trainctl::pricing
