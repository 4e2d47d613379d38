// The graph functions of DeviceApi (kernels/device_api.h) for CUDA.
#pragma once

#include <cstddef>

namespace trainctl::kernels {

void* BeginCudaGraph(char* reason, size_t reason_bytes);
int EndCudaGraph(void* graph, char* reason, size_t reason_bytes);
int LaunchCudaGraph(void* graph, char* reason, size_t reason_bytes);
void FreeCudaGraph(void* graph);

}  // namespace trainctl::kernels
