// Records the work that is queued on a device's stream and repeats it any number of times, each time with one
// launch (a CUDA graph). This helps small models, whose kernels a device finishes faster than the host can
// launch them.
//
//   if (Graph::IsThereFor(device)) {
//     TRAINCTL_ASSIGN_OR_RETURN(const auto graph, Graph::Capture(device, [&] { return RunStep(); }));
//     TRAINCTL_RETURN_IF_ERROR(graph->Launch());  // runs the step; once per repetition
//   }
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/device.h"

namespace trainctl::device {

class Graph {
 public:
  // Whether the device supports graphs. The CPU does not, and a device's plugin need not.
  static bool IsThereFor(const Device& device);

  // Calls `work` once and records the work that it queues on the calling thread's stream, without running it.
  // Requires IsThereFor(device). `device` must outlive the graph.
  //
  // Device memory that `work` allocates belongs to the graph; `work` frees it before it returns. `work` must
  // not wait for the device. Its code runs only during the capture, so the values that it reads from host
  // memory are fixed then.
  //
  // Returns InternalError with the reason if the capture or `work` fails; the device then works as before.
  // Returns WorkerError if the device can no longer be used.
  static absl::StatusOr<std::unique_ptr<Graph>> Capture(const Device& device,
                                                        const std::function<absl::Status()>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Queues the recorded work on the calling thread's stream. Returns InternalError if the launch fails.
  absl::Status Launch() const;

 private:
  Graph(const Device& device, void* graph) : device_(device), graph_(graph) {}

  const Device& device_;
  void* const graph_;
};

}  // namespace trainctl::device
