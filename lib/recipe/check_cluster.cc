#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cluster/catalogue.h"
#include "layout/layout.h"
#include "recipe/check_subjects.h"
#include "recipe/values.h"

namespace trainctl::recipe {
namespace {

void FailDevice(CheckContext& context, absl::string_view path, absl::string_view message) {
  context.Fail({path}, absl::StrCat(path, ": ", message));
  context.MarkBad(path);
}

// The device in the catalogue, or null after adding a mistake.
const cluster::Device* FindNamedDevice(CheckContext& context) {
  const std::string& name = context.recipe().cluster.device;
  const absl::StatusOr<cluster::DeviceMatch> match = cluster::FindDevice(name);
  if (match.ok()) return match->device;
  // These words name all GPUs, so suggesting the model with the most similar name would be arbitrary.
  if (const std::string word = absl::AsciiStrToLower(name); word == "gpu" || word == "gpus") {
    FailDevice(context, "cluster.device",
               absl::StrCat("\"", name,
                            "\" is not the name of a device; use \"cuda\" for this machine's NVIDIA "
                            "GPUs, or a model such as \"h100\""));
    return nullptr;
  }
  FailDevice(
      context, "cluster.device",
      absl::StrCat(match.status().message(), "; \"cpu\" and \"cuda\" name the devices of this machine"));
  return nullptr;
}

// Whether this version trains on the device.
bool CheckTrainsOn(CheckContext& context, const cluster::Device& device) {
  if (absl::string_view(device.vendor) != "nvidia") {
    FailDevice(context, "cluster.device",
               absl::StrCat(device.name,
                            ": this version trains only on NVIDIA GPUs and CPUs; use `trainctl plan --as "
                            "FRAMEWORK` to estimate other trainers' runs on other devices"));
    return false;
  }
  context.FailEach({{{"train.precision", "cluster.device"},
                     !device.has_bf16 && context.recipe().train.precision == "bf16",
                     absl::StrCat("train.precision = \"bf16\": ", device.name,
                                  " does not support bf16; use \"fp32\" or \"auto\"")}});
  return true;
}

// The node must have the device.
void CheckNode(CheckContext& context, const cluster::Device& device) {
  const ClusterConfig& cluster = context.recipe().cluster;
  if (!cluster.node.has_value() || !context.IsUsable({"cluster.node"})) return;
  const absl::StatusOr<const cluster::Node*> node = cluster::FindNode(*cluster.node);
  if (!node.ok()) return FailDevice(context, "cluster.node", node.status().message());
  if ((*node)->device != &device) {
    FailDevice(context, "cluster.node",
               absl::StrCat((*node)->name, " contains ", (*node)->device->name, ", but cluster.device is ",
                            device.name));
  }
}

bool IsOfThisMachine(absl::string_view device) { return device == "cpu" || device == kCudaDevice; }

}  // namespace

void CheckDevice(CheckContext& context) {
  const ClusterConfig& cluster = context.recipe().cluster;
  if (!context.IsUsable({"cluster.device"})) return;
  if (IsOfThisMachine(cluster.device)) {
    if (cluster.node.has_value() && cluster.device == kCudaDevice) {
      FailDevice(context, "cluster.node",
                 "it requires cluster.device to name an accelerator, but cluster.device is \"cuda\"");
    }
    return;
  }
  const cluster::Device* const device = FindNamedDevice(context);
  if (device != nullptr && CheckTrainsOn(context, *device)) CheckNode(context, *device);
}

void CheckWhatIfDevice(CheckContext& context) {
  const Recipe& recipe = context.recipe();
  if (!context.IsUsable({"cluster.device"})) return;
  if (IsOfThisMachine(recipe.cluster.device)) {
    return context.Fail({"cluster.device", "plan.framework"},
                        absl::StrCat("plan.framework = ", QuoteToml(recipe.plan.framework),
                                     " requires cluster.device to name an accelerator "
                                     "(docs/reference/catalogue.md), such as \"h100\""));
  }
  const cluster::Device* const device = FindNamedDevice(context);
  if (device != nullptr) CheckNode(context, *device);
}

void CheckNumDevices(CheckContext& context) {
  const ClusterConfig& cluster = context.recipe().cluster;
  if (cluster.nodes <= layout::kMaxWorkers / cluster.devices_per_node) return;
  context.Fail(
      {"cluster.nodes"},
      absl::StrCat("cluster.nodes ", cluster.nodes, " x cluster.devices_per_node ", cluster.devices_per_node,
                   " exceeds the limit of ", layout::kMaxWorkers, " devices per plan"));
}

}  // namespace trainctl::recipe
