#include "cluster/machine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/status.h"

namespace trainctl::cluster {
namespace {

void Override(const std::optional<int64_t>& stated, Constant& constant) {
  if (stated.has_value()) constant = {static_cast<double>(*stated), kStatedSource};
}

// A measured rate belongs to the hardware that it was measured on.
constexpr Constant kNotMeasured = {0, "not measured: the recipe overrides the data sheet"};

void OverrideDevice(const StatedMachine& c, Machine& machine) {
  machine.own_device = *machine.device;
  Device& device = machine.own_device;
  Override(c.memory_bytes, device.memory_bytes);
  Override(c.memory_bandwidth, device.memory_bandwidth);
  Override(c.half_flops, device.half_flops);
  Override(c.fp8_flops, device.fp8_flops);
  if (c.memory_bandwidth.has_value()) device.measured_memory_bandwidth = kNotMeasured;
  if (c.half_flops.has_value()) device.measured_half_flops = device.watts = kNotMeasured;
  machine.device = &device;
}

void OverrideNode(const StatedMachine& c, int64_t devices_per_node, Machine& machine) {
  const int usual_gpus = machine.node->gpus;
  machine.own_node = *machine.node;
  Node& node = machine.own_node;
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

// Numbers that may be stated, by their names in a plan.
constexpr std::pair<const char*, std::optional<int64_t> StatedMachine::*> kStatedNumbers[] = {
    {"memory_bytes", &StatedMachine::memory_bytes},
    {"memory_bandwidth", &StatedMachine::memory_bandwidth},
    {"half_flops", &StatedMachine::half_flops},
    {"fp8_flops", &StatedMachine::fp8_flops},
    {"scale_up_bandwidth", &StatedMachine::scale_up_bandwidth},
    {"scale_out_bandwidth", &StatedMachine::scale_out_bandwidth},
    {"nics", &StatedMachine::nics},
    {"host_memory_bytes", &StatedMachine::host_memory_bytes},
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Machine>> MachineOf(const StatedMachine& c) {
  auto machine = std::make_shared<Machine>();
  machine->stated = c;
  TRAINCTL_ASSIGN_OR_RETURN(const DeviceMatch match, FindDevice(c.device));
  machine->device = match.device;
  if (!match.assumption.empty()) machine->notes.push_back(absl::StrCat("cluster.device: ", match.assumption));
  if (c.node.has_value()) {
    TRAINCTL_ASSIGN_OR_RETURN(machine->node, FindNode(*c.node));
  } else {
    machine->node = &DefaultNodeFor(*machine->device);
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

Json ToJson(const StatedMachine& stated) {
  Json json = {{"device", stated.device}};
  if (stated.node.has_value()) json["node"] = *stated.node;
  json["nodes"] = stated.nodes;
  json["devices_per_node"] = stated.devices_per_node;
  for (const auto& [name, number] : kStatedNumbers) {
    if ((stated.*number).has_value()) json[name] = *(stated.*number);
  }
  return json;
}

absl::StatusOr<StatedMachine> StatedMachineFromJson(const Json& json, absl::string_view what) {
  if (!json.is_object()) return BadDataError(absl::StrCat(what, ": must be an object"));
  StatedMachine stated;
  TRAINCTL_ASSIGN_OR_RETURN(stated.device, JsonString(json, "device", what));
  TRAINCTL_ASSIGN_OR_RETURN(stated.nodes, JsonInt(json, "nodes", what));
  TRAINCTL_ASSIGN_OR_RETURN(stated.devices_per_node, JsonInt(json, "devices_per_node", what));
  if (json.contains("node")) {
    TRAINCTL_ASSIGN_OR_RETURN(stated.node, JsonString(json, "node", what));
  }
  for (const auto& [name, number] : kStatedNumbers) {
    if (!json.contains(name)) continue;
    TRAINCTL_ASSIGN_OR_RETURN(stated.*number, JsonInt(json, name, what));
    if (*(stated.*number) < 0) return BadDataError(absl::StrCat(what, ": field '", name, "' is negative"));
  }
  constexpr int64_t kMost = int64_t{1} << 20;
  if (stated.nodes < 1 || stated.nodes > kMost || stated.devices_per_node < 1 ||
      stated.devices_per_node > kMost)
    return BadDataError(absl::StrCat(what, ": nodes and devices_per_node must be from 1 to ", kMost));
  return stated;
}

}  // namespace trainctl::cluster
