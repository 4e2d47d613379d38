#include "recipe/machine.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::recipe {
namespace {

void Override(const std::optional<int64_t>& stated, cluster::Constant& constant) {
  if (stated.has_value()) constant = {static_cast<double>(*stated), kStatedSource};
}

// A measured rate belongs to the hardware that it was measured on.
constexpr cluster::Constant kNotMeasured = {0, "not measured: the recipe states another data sheet"};

void OverrideDevice(const ClusterConfig& c, Machine& machine) {
  machine.own_device = *machine.device;
  cluster::Device& device = machine.own_device;
  Override(c.memory_bytes, device.memory_bytes);
  Override(c.memory_bandwidth, device.memory_bandwidth);
  Override(c.half_flops, device.half_flops);
  Override(c.fp8_flops, device.fp8_flops);
  if (c.memory_bandwidth.has_value()) device.measured_memory_bandwidth = kNotMeasured;
  if (c.half_flops.has_value()) device.measured_half_flops = device.watts = kNotMeasured;
  machine.device = &device;
}

void OverrideNode(const ClusterConfig& c, int64_t devices_per_node, Machine& machine) {
  const int usual_gpus = machine.node->gpus;
  machine.own_node = *machine.node;
  cluster::Node& node = machine.own_node;
  node.device = machine.device;
  node.gpus = static_cast<int>(devices_per_node);
  if (c.nics.has_value()) {
    node.nics = static_cast<int>(*c.nics);
  } else if (node.gpus != usual_gpus && node.nics > 0) {
    // Adapters belong to GPUs: a part of a machine brings its part of them.
    const int64_t share = static_cast<int64_t>(node.nics) * node.gpus / usual_gpus;
    node.nics = static_cast<int>(std::max<int64_t>(1, share));
    machine.notes.push_back(absl::StrCat("cluster.nics: ", node.nics, " for ", node.gpus, " of the ",
                                         usual_gpus, " devices of ", node.name));
  }
  if (c.host_memory_bytes.has_value()) node.cpu_memory_bytes = *c.host_memory_bytes;
  if (c.scale_up_bandwidth.has_value()) {
    machine.own_scale_up = *node.scale_up;
    Override(c.scale_up_bandwidth, machine.own_scale_up.bandwidth);
    node.scale_up = &machine.own_scale_up;
  }
  if (c.scale_out_bandwidth.has_value()) {
    machine.own_scale_out = *node.scale_out;
    Override(c.scale_out_bandwidth, machine.own_scale_out.bandwidth);
    node.scale_out = &machine.own_scale_out;
  }
  machine.node = &node;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Machine>> MachineOf(const ClusterConfig& c) {
  auto machine = std::make_shared<Machine>();
  TRAINCTL_ASSIGN_OR_RETURN(const cluster::DeviceMatch match, cluster::FindDevice(c.device));
  machine->device = match.device;
  if (!match.assumption.empty()) machine->notes.push_back(absl::StrCat("cluster.device: ", match.assumption));
  if (c.node.has_value()) {
    TRAINCTL_ASSIGN_OR_RETURN(machine->node, cluster::FindNode(*c.node));
  } else {
    machine->node = &cluster::DefaultNodeFor(*machine->device);
    machine->notes.push_back(absl::StrCat("cluster.node = auto: ", machine->node->name));
  }
  machine->num_nodes = c.nodes;
  if (c.memory_bytes.has_value() || c.memory_bandwidth.has_value() || c.half_flops.has_value() ||
      c.fp8_flops.has_value()) {
    OverrideDevice(c, *machine);
  }
  if (machine->node->device != machine->device || c.devices_per_node != machine->node->gpus ||
      c.nics.has_value() || c.host_memory_bytes.has_value() || c.scale_up_bandwidth.has_value() ||
      c.scale_out_bandwidth.has_value()) {
    OverrideNode(c, c.devices_per_node, *machine);
  }
  return std::shared_ptr<const Machine>(std::move(machine));
}

absl::StatusOr<std::shared_ptr<const Machine>> MachineFor(ClusterConfig c, const cluster::Host& host) {
  if (c.device != kCudaDevice) return MachineOf(c);
  if (!cluster::FindDevice(host.accelerator).ok()) return std::shared_ptr<const Machine>();
  c.device = host.accelerator;
  return MachineOf(c);
}

}  // namespace trainctl::recipe
