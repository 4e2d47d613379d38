#include "kernels/cuda/graph.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdio>
#include <exception>
#include <memory>

namespace trainctl::kernels {
namespace {

template <typename Work>
int Guarded(char* reason, size_t reason_bytes, const Work& work) {
  try {
    work();
    return 0;
  } catch (const std::exception& error) {
    std::snprintf(reason, reason_bytes, "%s", error.what());
    return 1;
  }
}

}  // namespace

void* BeginCudaGraph(char* reason, size_t reason_bytes) {
  auto graph = std::make_unique<at::cuda::CUDAGraph>();
  const int failed = Guarded(reason, reason_bytes, [&] {
    // The graph has memory of its own; that of the steps before it lies idle from now on.
    c10::cuda::CUDACachingAllocator::emptyCache();
    // Other threads may ask CUDA for what they like meanwhile.
    graph->capture_begin(/*pool=*/{0, 0}, cudaStreamCaptureModeThreadLocal);
  });
  return failed == 0 ? graph.release() : nullptr;
}

int EndCudaGraph(void* graph, char* reason, size_t reason_bytes) {
  return Guarded(reason, reason_bytes, [&] { static_cast<at::cuda::CUDAGraph*>(graph)->capture_end(); });
}

int LaunchCudaGraph(void* graph, char* reason, size_t reason_bytes) {
  return Guarded(reason, reason_bytes, [&] { static_cast<at::cuda::CUDAGraph*>(graph)->replay(); });
}

void FreeCudaGraph(void* graph) { delete static_cast<at::cuda::CUDAGraph*>(graph); }

}  // namespace trainctl::kernels
