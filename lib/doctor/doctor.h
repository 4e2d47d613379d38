// What of a machine a run can use, what is wrong with it and how to mend it: for `trainctl doctor`. Reads
// /proc, /sys and /etc, asks file systems for their room and the driver's own library for its devices;
// changes nothing. Thread safe.
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
  kNote,     // worth knowing, nothing to mend
  kWarning,  // a run works, but badly, or may fail
  kBad,      // a run cannot work
};
absl::string_view HealthName(Health health);  // "ok", "note", "warning", "bad"

struct Finding {
  std::string name = {};   // "memory"
  std::string value = {};  // "21.0 GiB free of 23.4 GiB"
  Health health = Health::kGood;
  std::string advice = {};  // what to do; never empty for a warning and for what is bad
};

// Where everything is looked for; a test gives a tree of its own.
struct Sources {
  std::string root;  // before /proc, /sys, /etc and the folders of libraries; "" is the machine itself
  std::string folder = ".";  // where runs are going to be written
  std::string nvml = "libnvidia-ml.so.1";
  std::vector<std::string> nccl_folders;  // searched for NCCL before those of the system
  absl::Time now = absl::Now();
  // Finds the room of a path's file system.
  std::function<absl::StatusOr<DiskRoom>(const std::string& path)> room;
  cluster::Environment environment;  // of this process
  // Files can be made in the folder.
  std::function<bool(const std::string& path)> is_writable;
};

struct Machine {
  cluster::Host host;
  // Models of the accelerators that a run sees, and the catalogue's device for them; null: it has none like
  // that.
  std::vector<std::string> accelerators;
  const cluster::Device* device = nullptr;
  absl::StatusOr<CudaDriver> driver = absl::NotFoundError("not asked");
  absl::StatusOr<cluster::VisibleGpus> visible = cluster::VisibleGpus();  // of those that are listed
  std::vector<Finding> findings;
};

// EnvironmentError when not even /proc/meminfo can be read.
absl::StatusOr<Machine> InspectMachine(const Sources& sources = {});

// The worker program as a finding: that it starts and with which LibTorch, from `program version`. `program`
// is where it was found, or why not. Waits at most `patience`.
Finding InspectWorker(const absl::StatusOr<std::string>& program,
                      absl::Duration patience = absl::Seconds(60));

// The [cluster] table of a recipe that plans for this machine.
std::string ClusterTable(const Machine& machine);

}  // namespace trainctl::doctor
