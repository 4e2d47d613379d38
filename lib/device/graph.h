// Work of a device's stream that is kept and then done again and again, each time by one launch: for models
// so small that a device does their kernels faster than a host launches them.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/device.h"

namespace trainctl::device {

class Graph {
 public:
  // The CPU has none, and a device's plugin need not have them.
  static bool IsThereFor(const Device& device);

  // Calls `work`, whose launches on the calling thread's stream are kept and not done. What it allocates is
  // the graph's, and freed when it returns; it does not wait for the device, and what it reads of the host's
  // memory it reads now. Errors: InternalError with the reason, after which the device works as before;
  // WorkerError if the device cannot be used any more.
  static absl::StatusOr<std::unique_ptr<Graph>> Capture(const Device& device,
                                                        const std::function<absl::Status()>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // On the calling thread's stream, in its turn.
  absl::Status Launch() const;

 private:
  Graph(const Device& device, void* graph) : device_(device), graph_(graph) {}

  const Device& device_;
  void* const graph_;
};

}  // namespace trainctl::device
