#include "kernels/cuda/graph.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <cstdio>
#include <exception>
#include <memory>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/device_api.h"

namespace trainctl::kernels {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

// LibTorch's graph, with what it takes to undo a capture that failed: LibTorch leaves its allocator in the
// capture then.
struct Graph : at::cuda::CUDAGraph {
  const c10::DeviceIndex device = c10::cuda::current_device();
  const at::MempoolId_t pool_id = at::cuda::graph_pool_handle();

  bool is_complete() const { return capture_ended_; }
};

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

// How far a capture came before it failed decides which of these have anything to undo.
template <typename Work>
void IfThere(const Work& work) {
  (void)Guarded(nullptr, 0, work);
}

// Ends a failed capture and returns its memory, so that kernels are launched as before it. False if the
// device cannot be used any more.
bool Abandon(Graph& graph) {
  const cudaStream_t stream = CurrentCudaStream();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone) {
    cudaGraph_t partial = nullptr;
    (void)cudaStreamEndCapture(stream, &partial);
    if (partial != nullptr) (void)cudaGraphDestroy(partial);
  }
  if (!graph.is_complete()) {
    at::HostAllocator* const host = at::getHostAllocator(at::kCUDA);
    IfThere([&] { allocator::endAllocateToPool(graph.device, graph.pool_id); });
    IfThere([&] { host->end_allocate_to_pool(graph.pool_id); });
    IfThere([&] { allocator::releasePool(graph.device, graph.pool_id); });
    IfThere([&] { host->release_pool(graph.pool_id); });
  }
  (void)cudaGetLastError();
  // The first call drops what a launch within the capture left, the second one asks the device.
  (void)TakeCudaError(nullptr, 0);
  return TakeCudaError(nullptr, 0) == 0;
}

}  // namespace

void* BeginCudaGraph(char* reason, size_t reason_bytes) {
  std::unique_ptr<Graph> graph;
  const int failed = Guarded(reason, reason_bytes, [&] {
    graph = std::make_unique<Graph>();
    // The graph has memory of its own; that of the steps before it lies idle from now on.
    allocator::emptyCache();
    // Other threads may ask CUDA for what they like meanwhile.
    graph->capture_begin(graph->pool_id, cudaStreamCaptureModeThreadLocal);
  });
  if (failed == 0) return graph.release();
  if (graph != nullptr) (void)Abandon(*graph);
  return nullptr;
}

int EndCudaGraph(void* begun, char* reason, size_t reason_bytes) {
  Graph& graph = *static_cast<Graph*>(begun);
  if (Guarded(reason, reason_bytes, [&] { graph.capture_end(); }) == 0) return kGraphEnded;
  return Abandon(graph) ? kGraphFailed : kGraphFailedAndDeviceToo;
}

int LaunchCudaGraph(void* graph, char* reason, size_t reason_bytes) {
  return Guarded(reason, reason_bytes, [&] { static_cast<Graph*>(graph)->replay(); });
}

void FreeCudaGraph(void* graph) { delete static_cast<Graph*>(graph); }

}  // namespace trainctl::kernels
