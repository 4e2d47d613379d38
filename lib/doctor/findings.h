// The individual parts of an inspection. Internal to lib/doctor.
#pragma once

#include <string>
#include <vector>

#include "cluster/visible_gpus.h"
#include "doctor/doctor.h"

namespace trainctl::doctor {

// Checks the processor, memory, containers, disks, process limits, clock, and load.
void AddHostFindings(const Sources& sources, Machine& machine);
// Checks the batch job that contains this process.
void AddBatchFindings(const Sources& sources, Machine& machine);
// Returns the GPUs that a run may choose from: those reported by `driver`, or those listed by the kernel if
// the driver's library is missing.
std::vector<cluster::ListedGpu> ListGpus(const absl::StatusOr<CudaDriver>& driver, const std::string& root);
// Returns the GPU's model from `listed`. For a MIG instance, returns the driver's name for it, which ends in
// its profile ("MIG 1g.10gb").
std::string ModelOf(const cluster::VisibleGpu& gpu, const absl::StatusOr<CudaDriver>& driver,
                    const std::vector<cluster::ListedGpu>& listed);
// Returns the GPU selection made by this process's environment.
cluster::GpuSelection SelectionOf(const Sources& sources);
// Checks accelerators, their driver, NCCL, networks, and RDMA. Sets Machine::device.
void AddDeviceFindings(const Sources& sources, Machine& machine);

// Returns the first line of a small file, without surrounding white space. Returns "" if the file cannot be
// read.
std::string ReadFirstLine(const std::string& path);

struct Limit {
  bool known = false;
  bool unlimited = false;
  int64_t soft = 0;
  std::string hard;  // as spelled by the kernel
};
// Reads a row of /proc/self/limits, such as "Max open files".
Limit ReadLimit(const std::string& root, absl::string_view row);

}  // namespace trainctl::doctor
