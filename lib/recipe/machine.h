// The machine of a recipe: a device in its node, rows of the catalogue or copies of them where the recipe
// states other numbers. Pure; thread safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/catalogue.h"
#include "cluster/host.h"
#include "recipe/recipe.h"

namespace trainctl::recipe {

// Prices point into it, so it lives as long as they do.
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

inline constexpr char kStatedSource[] = "stated in the recipe";

// Of a device that the catalogue names. UsageError: an unknown device or node (a loaded recipe has neither).
absl::StatusOr<std::shared_ptr<const Machine>> MachineOf(const ClusterConfig& cluster);

// The same; with cluster.device = "cuda" of the device that `host` has. Null: the catalogue does not know
// that one.
absl::StatusOr<std::shared_ptr<const Machine>> MachineFor(ClusterConfig cluster, const cluster::Host& host);

}  // namespace trainctl::recipe
