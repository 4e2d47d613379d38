#include "planner/cluster_inputs.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/names.h"
#include "base/status.h"
#include "model/config_json.h"
#include "pricing/known_models.h"
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

const pricing::KnownModel* KnownPreset(absl::string_view name) {
  const std::string key = pricing::Normalized(name);
  for (const pricing::KnownModel& model : pricing::KnownModels()) {
    if (key == model.pattern) return &model;
  }
  return nullptr;
}

std::string UnknownPreset(absl::string_view name) {
  std::vector<std::string> names = model::PresetNames();
  for (const pricing::KnownModel& model : pricing::KnownModels()) names.emplace_back(model.pattern);
  return absl::StrCat("model.preset = ", QuotedName(name), " is not known; the nearest are ",
                      NearestNames(name, names), ". model.from = FOLDER takes any config.json");
}

// The dimensions beside a preset or folder; head sizes follow unless they were the model's own choice.
void OverrideSizes(const LoadedRecipe& loaded, model::ModelSpec& a) {
  const model::ModelSpec& spec = loaded.recipe.model.spec;
  const model::ModelSpec base = a;
  const auto stated = [&](const char* name) { return loaded.stated.count(absl::StrCat("model.", name)) > 0; };
  const auto take = [&](const char* name, int64_t value, int64_t& size) {
    if (stated(name)) size = value;
  };
  take("layers", spec.layers, a.layers);
  take("hidden", spec.hidden, a.hidden);
  take("heads", spec.heads, a.heads);
  take("ffn", spec.ffn, a.ffn);
  take("vocab", spec.vocab, a.vocab);
  if (stated("heads") && base.kv_heads == base.heads) a.kv_heads = a.heads;
  take("kv_heads", spec.kv_heads, a.kv_heads);
  if (base.head_dim * base.heads == base.hidden && a.heads > 0 && !a.latent.has_value()) {
    a.head_dim = a.hidden / a.heads;
  }
  take("head_dim", spec.head_dim, a.head_dim);
  if (stated("tie_embeddings")) a.tie_embeddings = spec.tie_embeddings;
  if (stated("qkv_bias")) a.qkv_bias = spec.qkv_bias;
  if (stated("attention_out_bias")) a.attention_out_bias = spec.attention_out_bias;
  if (stated("mlp_bias")) a.mlp_bias = spec.mlp_bias;
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

absl::StatusOr<PlannedModel> ModelOf(const LoadedRecipe& loaded) {
  const recipe::ModelConfig& m = loaded.recipe.model;
  PlannedModel model;
  std::string where = "model.family";
  if (!m.beyond_spec) {
    model.name = m.preset.empty() ? m.spec.family : m.preset;
    model.spec = m.spec;
  } else if (!m.from.empty()) {
    where = "model.from";
    const std::filesystem::path folder(m.from);
    model.name = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
    TRAINCTL_ASSIGN_OR_RETURN(model::ConfigModel config,
                              model::ReadConfigJson(m.config_json, absl::StrCat(m.from, "/config.json")));
    model.spec = config.spec;
    model.notes = pricing::LeftOut(config.spec);
    OverrideSizes(loaded, model.spec);
  } else {
    where = "model.preset";
    const pricing::KnownModel* known = KnownPreset(m.preset);
    if (known == nullptr) return UsageError(AtField(loaded, where, UnknownPreset(m.preset)));
    model.name = m.preset;
    model.spec = known->spec;
    OverrideSizes(loaded, model.spec);
  }
  const model::ModelSpec& a = model.spec;
  if (a.heads > 0 && !a.latent.has_value() && loaded.stated.count("model.head_dim") == 0 &&
      a.head_dim * a.heads != a.hidden && a.hidden % a.heads != 0 && loaded.stated.count("model.heads") > 0) {
    return UsageError(AtField(loaded, "model.heads",
                              absl::StrCat("model.hidden (", a.hidden, ") is not a multiple of model.heads (",
                                           a.heads, "); change one of them or give model.head_dim")));
  }
  if (const absl::Status valid = model::Validate(a); !valid.ok()) {
    return UsageError(AtField(loaded, where, absl::StrCat("the model: ", valid.message())));
  }
  return model;
}

}  // namespace trainctl::planner
