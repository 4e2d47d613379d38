#include "planner/cluster_inputs.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "pricing/layer_work.h"

namespace trainctl::planner {
namespace {

using recipe::LoadedRecipe;

void Override(const std::optional<int64_t>& stated, cluster::Constant& constant) {
  if (stated.has_value()) constant = {static_cast<double>(*stated), kStatedSource};
}

// A measured rate belongs to the hardware that it was measured on.
constexpr cluster::Constant kNotMeasured = {0, "not measured: the recipe states another data sheet"};

void OverrideDevice(const recipe::ClusterConfig& c, Machine& machine) {
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

void OverrideNode(const recipe::ClusterConfig& c, int64_t devices_per_node, Machine& machine) {
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

std::string AtField(const LoadedRecipe& loaded, const std::string& path, absl::string_view message) {
  const auto origin = loaded.origin.find(path);
  const bool is_stated = loaded.stated.count(path) > 0 && origin != loaded.origin.end();
  return is_stated ? absl::StrCat(origin->second, ": ", message) : std::string(message);
}

absl::StatusOr<std::shared_ptr<const Machine>> MachineOf(const LoadedRecipe& loaded) {
  const recipe::ClusterConfig& c = loaded.recipe.cluster;
  const auto at = [&](const char* path, const absl::Status& status) {
    return UsageError(AtField(loaded, path, absl::StrCat(path, ": ", status.message())));
  };
  auto machine = std::make_shared<Machine>();
  const absl::StatusOr<cluster::DeviceMatch> match = cluster::FindDevice(c.device);
  if (!match.ok()) return at("cluster.device", match.status());
  machine->device = match->device;
  if (!match->assumption.empty())
    machine->notes.push_back(absl::StrCat("cluster.device: ", match->assumption));
  if (c.node.has_value()) {
    const absl::StatusOr<const cluster::Node*> node = cluster::FindNode(*c.node);
    if (!node.ok()) return at("cluster.node", node.status());
    if ((*node)->device != machine->device) {
      return at("cluster.node",
                UsageError(absl::StrCat((*node)->name, " has ", (*node)->device->name, ", not the ",
                                        machine->device->name, " of cluster.device")));
    }
    machine->node = *node;
  } else {
    machine->node = &cluster::DefaultNodeFor(*machine->device);
    machine->notes.push_back(absl::StrCat("cluster.node = auto: ", machine->node->name));
  }
  const bool has_count = loaded.stated.count("cluster.devices_per_node") > 0;
  const int64_t devices_per_node = has_count ? c.devices_per_node : machine->node->gpus;
  machine->num_nodes = c.nodes;
  if (c.nodes > kMostGpus / devices_per_node) {
    return UsageError(
        AtField(loaded, "cluster.nodes",
                absl::StrCat("cluster.nodes ", c.nodes, " x cluster.devices_per_node ", devices_per_node,
                             " is more than the ", kMostGpus, " devices that a plan can have")));
  }
  if (c.memory_bytes.has_value() || c.memory_bandwidth.has_value() || c.half_flops.has_value() ||
      c.fp8_flops.has_value()) {
    OverrideDevice(c, *machine);
  }
  if (machine->node->device != machine->device || devices_per_node != machine->node->gpus ||
      c.nics.has_value() || c.host_memory_bytes.has_value() || c.scale_up_bandwidth.has_value() ||
      c.scale_out_bandwidth.has_value()) {
    OverrideNode(c, devices_per_node, *machine);
  }
  return std::shared_ptr<const Machine>(std::move(machine));
}

PlannedModel ModelOf(const LoadedRecipe& loaded) {
  const recipe::ModelConfig& m = loaded.recipe.model;
  const std::filesystem::path folder(m.from);
  PlannedModel model;
  model.name = !m.preset.empty() ? m.preset
               : m.from.empty()  ? m.spec.family
                                : (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  model.spec = m.spec;
  model.notes = pricing::LeftOut(m.spec);
  return model;
}

}  // namespace trainctl::planner
