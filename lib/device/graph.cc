#include "device/graph.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/device_api.h"

namespace trainctl::device {

bool Graph::IsThereFor(const Device& device) {
  return !device.is_cpu() && device.api()->begin_graph != nullptr;
}

absl::StatusOr<std::unique_ptr<Graph>> Graph::Capture(const Device& device,
                                                      const std::function<absl::Status()>& work) {
  char reason[512] = "";
  const auto failure = [&](const char* what) { return InternalError(absl::StrCat(what, ": ", reason)); };
  void* const begun = device.api()->begin_graph(reason, sizeof(reason));
  if (begun == nullptr) return failure("a graph cannot be begun");
  std::unique_ptr<Graph> graph(new Graph(device, begun));
  const absl::Status status = work();
  const int ended = device.api()->end_graph(begun, reason, sizeof(reason));
  if (ended == kernels::kGraphFailedAndDeviceToo) {
    return WorkerError(absl::StrCat("a graph cannot be made, and the device cannot be used any more: ",
                                    reason, "; run.graphs = false trains without graphs"));
  }
  if (!status.ok()) return InternalError(absl::StrCat("a graph cannot be made: ", status.message()));
  if (ended != kernels::kGraphEnded) return failure("a graph cannot be made");
  return graph;
}

Graph::~Graph() { device_.api()->free_graph(graph_); }

absl::Status Graph::Launch() const {
  char reason[512] = "";
  if (device_.api()->launch_graph(graph_, reason, sizeof(reason)) == 0) return absl::OkStatus();
  return InternalError(absl::StrCat("a graph cannot be launched: ", reason));
}

}  // namespace trainctl::device
