// The parts of an inspection. Internal to lib/doctor.
#pragma once

#include <string>
#include <vector>

#include "cluster/visible_gpus.h"
#include "doctor/doctor.h"

namespace trainctl::doctor {

// Of the processor, memory, containers, disks, limits of processes, clock and load.
void AddHostFindings(const Sources& sources, Machine& machine);
// Of the job of a batch system that this process belongs to.
void AddBatchFindings(const Sources& sources, Machine& machine);
// The GPUs that a run may choose from: those of `driver`, or those that the kernel lists if the driver's
// library is missing.
std::vector<cluster::ListedGpu> ListGpus(const absl::StatusOr<CudaDriver>& driver, const std::string& root);
// What `listed` calls a GPU; for a MIG instance the driver's name, which ends in its profile ("MIG 1g.10gb").
std::string ModelOf(const cluster::VisibleGpu& gpu, const absl::StatusOr<CudaDriver>& driver,
                    const std::vector<cluster::ListedGpu>& listed);
// Those of the process that asks.
cluster::GpuSelection SelectionOf(const Sources& sources);
// Of accelerators, their driver and NCCL, of networks and RDMA; fills Machine::device.
void AddDeviceFindings(const Sources& sources, Machine& machine);

// The first line of a small file without white space around it; "" where there is none.
std::string FirstLine(const std::string& path);

struct Limit {
  bool known = false;
  bool unlimited = false;
  int64_t soft = 0;
  std::string hard;  // as the kernel writes it
};
// A row of /proc/self/limits, such as "Max open files".
Limit ReadLimit(const std::string& root, absl::string_view row);

}  // namespace trainctl::doctor
