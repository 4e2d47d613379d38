// The machine for which the planner estimates: a device in its node. Both are rows of the catalogue, or
// copies of rows in which stated values replace the catalogue's. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/json_fwd.h"
#include "cluster/catalogue.h"

namespace trainctl::cluster {

// The values that the user states about a machine. Values that are not set come from the catalogue.
struct StatedMachine {
  std::string device;
  std::optional<std::string> node;
  int64_t nodes = 1;
  int64_t devices_per_node = 1;
  std::optional<int64_t> memory_bytes, memory_bandwidth, half_flops, fp8_flops;
  std::optional<int64_t> scale_up_bandwidth, scale_out_bandwidth, nics, host_memory_bytes;
  bool operator==(const StatedMachine&) const = default;
};

struct Machine {
  const Device* device = nullptr;
  const Node* node = nullptr;
  int64_t num_nodes = 1;
  StatedMachine stated;
  std::vector<std::string> notes;
  // Storage for rows that differ from the catalogue; `device` and `node` may point here.
  Device own_device;
  Node own_node;
  Link own_scale_up, own_scale_out;

  Machine() = default;
  Machine(const Machine&) = delete;  // because it points into itself
  Machine& operator=(const Machine&) = delete;

  int64_t num_gpus() const { return num_nodes * node->gpus; }
};

inline constexpr char kStatedSource[] = "stated in the recipe";

// Looks up a machine. Returns UsageError for an unknown device or node.
absl::StatusOr<std::shared_ptr<const Machine>> MachineOf(const StatedMachine& stated);

Json ToJson(const StatedMachine& stated);
// The inverse of ToJson. A BadDataError names `what` and the field.
absl::StatusOr<StatedMachine> StatedMachineFromJson(const Json& json, absl::string_view what);

}  // namespace trainctl::cluster
