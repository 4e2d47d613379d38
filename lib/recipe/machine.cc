#include "recipe/machine.h"

#include <utility>

namespace trainctl::recipe {

absl::StatusOr<std::shared_ptr<const cluster::Machine>> MachineOf(const ClusterConfig& c) {
  return cluster::MachineOf({.device = c.device,
                             .node = c.node,
                             .nodes = c.nodes,
                             .devices_per_node = c.devices_per_node,
                             .memory_bytes = c.memory_bytes,
                             .memory_bandwidth = c.memory_bandwidth,
                             .half_flops = c.half_flops,
                             .fp8_flops = c.fp8_flops,
                             .scale_up_bandwidth = c.scale_up_bandwidth,
                             .scale_out_bandwidth = c.scale_out_bandwidth,
                             .nics = c.nics,
                             .host_memory_bytes = c.host_memory_bytes});
}

absl::StatusOr<std::shared_ptr<const cluster::Machine>> MachineFor(ClusterConfig c,
                                                                   const cluster::Host& host) {
  if (c.device != kCudaDevice) return MachineOf(c);
  if (!cluster::FindDevice(host.accelerator).ok()) return std::shared_ptr<const cluster::Machine>();
  c.device = host.accelerator;
  return MachineOf(c);
}

}  // namespace trainctl::recipe
