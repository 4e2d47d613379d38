// What of a machine a run can use, what is wrong with it and how to mend it: for `trainctl doctor`. Reads
// /proc, /sys and the limits of this process; changes nothing and needs no driver. Thread safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/catalogue.h"
#include "cluster/host.h"

namespace trainctl::cluster {

enum class Health : uint8_t {
  kGood,
  kNote,     // worth knowing, nothing to mend
  kWarning,  // a run works, but badly, or may fail
};
absl::string_view HealthName(Health health);  // "ok", "note", "warning"

struct Finding {
  std::string name;   // "memory"
  std::string value;  // "21.0 GiB free of 23.4 GiB"
  Health health = Health::kGood;
  std::string advice;  // what to do; may be empty
};

struct Machine {
  Host host;
  // Accelerators of the driver, all alike, and the catalogue's device for them; null: it has none like that.
  std::vector<std::string> accelerators;
  const Device* device = nullptr;
  std::vector<Finding> findings;
};

// `root` is where /proc and /sys are found; tests give a folder of their own.
absl::StatusOr<Machine> InspectMachine(const std::string& root = "");

// The [cluster] table of a recipe that plans for this machine.
std::string ClusterTable(const Machine& machine);

}  // namespace trainctl::cluster
