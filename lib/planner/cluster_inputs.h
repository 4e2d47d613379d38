// What a recipe says of model and machine, in the words of lib/pricing and lib/cluster. Internal to the
// planning for clusters. Pure; thread safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/catalogue.h"
#include "model/model_spec.h"
#include "recipe/load.h"

namespace trainctl::planner {

// A device in its node: rows of the catalogue, or copies of them where the recipe states other numbers.
// Workloads point into it, so it lives as long as they do.
struct Machine {
  const cluster::Device* device = nullptr;
  const cluster::Node* node = nullptr;
  int64_t num_nodes = 1;
  std::vector<std::string> notes;
  // Storage of what is not a row of the catalogue.
  cluster::Device own_device;
  cluster::Node own_node;
  cluster::Link own_scale_up, own_scale_out;

  Machine() = default;
  Machine(const Machine&) = delete;  // it points into itself
  Machine& operator=(const Machine&) = delete;

  int64_t num_gpus() const { return num_nodes * node->gpus; }
};

inline constexpr int64_t kMostGpus = int64_t{1} << 20;
inline constexpr char kStatedSource[] = "stated in the recipe";

// UsageError at the field's place: an unknown device or node (with the nearest names), a node of another
// device, more than kMostGpus.
absl::StatusOr<std::shared_ptr<const Machine>> MachineOf(const recipe::LoadedRecipe& loaded);

struct PlannedModel {
  std::string name;  // of the preset, the folder or the family
  model::ModelSpec spec;
  std::vector<std::string> notes;
};

PlannedModel ModelOf(const recipe::LoadedRecipe& loaded);

// `message` with the place where the recipe states `path`, if it does.
std::string AtField(const recipe::LoadedRecipe& loaded, const std::string& path, absl::string_view message);

}  // namespace trainctl::planner
