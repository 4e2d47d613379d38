// Inspects a machine for `trainctl doctor`. Finds the resources available to a run and any problems, along
// with their fixes. Reads /proc, /sys, and /etc, and queries file systems for free space and the driver's
// library for devices. Does not change anything. Thread-safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(const doctor::Machine machine, doctor::InspectMachine());
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/files.h"
#include "cluster/batch_job.h"
#include "cluster/catalogue.h"
#include "cluster/host.h"
#include "cluster/visible_gpus.h"
#include "doctor/nvml.h"

namespace trainctl::doctor {

enum class Health : uint8_t {
  kGood,
  kNote,     // worth knowing, but nothing to fix
  kWarning,  // runs work, but may be slow or may fail
  kBad,      // runs cannot work
};
absl::string_view HealthName(Health health);  // "ok", "note", "warning", "bad"

struct Finding {
  std::string name = {};   // for example "memory"
  std::string value = {};  // for example "21.0 GiB free of 23.4 GiB"
  Health health = Health::kGood;
  std::string advice = {};  // how to fix it; never empty for kWarning or kBad
};

// The places to inspect. Tests substitute their own directory tree.
struct Sources {
  // Prefix of /proc, /sys, /etc, and the library folders. "" means the real machine.
  std::string root;
  std::string folder = ".";  // folder for runs
  std::string nvml = "libnvidia-ml.so.1";
  std::vector<std::string> nccl_folders;  // folders to search for NCCL before the system's
  absl::Time now = absl::Now();
  // Returns the free space of the file system that contains `path`.
  std::function<absl::StatusOr<DiskRoom>(const std::string& path)> room;
  cluster::Environment environment;  // environment of this process
  // Returns whether files can be created in the folder `path`.
  std::function<bool(const std::string& path)> is_writable;
};

struct Machine {
  cluster::Host host;
  // The models of the accelerators visible to a run, and their catalogue entry, which is null if there is
  // none.
  std::vector<std::string> accelerators;
  const cluster::Device* device = nullptr;
  absl::StatusOr<CudaDriver> driver = absl::NotFoundError("not asked");
  // The visible devices among those that the driver lists.
  absl::StatusOr<cluster::VisibleGpus> visible = cluster::VisibleGpus();
  std::vector<Finding> findings;
};

// Inspects this machine. Returns EnvironmentError if not even /proc/meminfo can be read.
absl::StatusOr<Machine> InspectMachine(const Sources& sources = {});

// Runs `program version` to check that the worker program starts and which LibTorch it uses. `program` is its
// path, or the reason why it was not found. Blocks for up to `patience`.
Finding InspectWorker(const absl::StatusOr<std::string>& program,
                      absl::Duration patience = absl::Seconds(60));

// Returns a recipe's [cluster] table that describes this machine.
std::string ClusterTable(const Machine& machine);

}  // namespace trainctl::doctor
