#include "frameworks/device_memory.h"

#include <algorithm>

namespace trainctl::frameworks {
namespace {

constexpr double kMiB = 1024.0 * 1024;

// Of one connection of one channel, by NCCL's three protocols (NVIDIA/nccl v2.10.3 src/init.cc:464-466 and
// src/include/devcomm.h:31,52-70; unchanged in v2.27): Simple 4 MiB; LL128 120 elements x 640 threads x 8
// steps x 8 bytes; LL 8 lines x 512 threads x 8 steps x 16 bytes.
constexpr double kConnectionBytes = 4 * kMiB + 120.0 * 640 * 8 * 8 + 8.0 * 512 * 8 * 16;

}  // namespace

double CommunicatorBytes(const Workload& w, int64_t ranks, int64_t per_node) {
  if (ranks <= 1) return 0;
  const FrameworkProfile& f = *w.framework;
  // A ring has one connection in, a tree one up and one down; newer versions connect what is used
  // (src/init.cc, NCCL_RUNTIME_CONNECT of v2.22).
  const double connections = f.nccl_connects_all ? 3 : 1;
  const bool inside = ranks <= per_node;
  // Inside a machine a channel for each pair of links to the switch; between machines two for each adapter
  // that the ranks of a machine can use (src/graph/connect.cc doubles the rings that were found).
  const double channels =
      inside ? f.nccl_channels : 2 * std::clamp<double>(static_cast<double>(per_node) / 2, 1, 4);
  // Through an adapter both ends are buffered on the device.
  return channels * connections * kConnectionBytes * (inside ? 1 : 2);
}

double OutsideBytes(const Workload& w) {
  const FrameworkProfile& f = *w.framework;
  const int64_t node = std::max<int64_t>(1, w.node->gpus);
  const auto group = [&](int64_t ranks, int64_t stride) {
    return CommunicatorBytes(w, ranks,
                             std::max<int64_t>(1, std::min(ranks, node / std::max<int64_t>(1, stride))));
  };
  double bytes = f.context_bytes + f.workspace_bytes;
  bytes += f.tensor_groups * group(w.mesh.tp, 1);
  bytes += group(w.mesh.cp, w.mesh.tp) + group(w.mesh.ep, 1);
  bytes += f.data_groups * group(w.mesh.data_degree() * w.mesh.cp, w.mesh.tp);
  if (w.mesh.pp > 1) {
    // A pair with each neighbour, of two ranks each, and one group over all stages.
    const int64_t apart = w.mesh.ranks_per_stage();
    bytes += 2 * group(2, apart) + group(w.mesh.pp, apart);
  }
  if (w.mesh.world_size() > 1) bytes += f.world_groups * group(w.mesh.world_size(), 1);
  return bytes;
}

}  // namespace trainctl::frameworks
