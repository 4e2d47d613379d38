// What a device holds beside tensors: the CUDA context, the libraries' buffers, NCCL's buffers. Pure.
#pragma once

#include "frameworks/workload.h"

namespace trainctl::frameworks {

// NCCL's buffers of one communicator of `ranks`, `per_node` of them on one machine.
double CommunicatorBytes(const Workload& workload, int64_t ranks, int64_t per_node);

// Context, workspaces of the libraries, and all communicators that the framework opens for the degrees.
double OutsideBytes(const Workload& workload);

}  // namespace trainctl::frameworks
