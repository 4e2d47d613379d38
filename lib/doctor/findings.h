// The parts of an inspection. Internal to lib/doctor.
#pragma once

#include <string>
#include <vector>

#include "doctor/doctor.h"

namespace trainctl::doctor {

// Of the processor, memory, containers, disks, limits of processes, clock and load.
void AddHostFindings(const Sources& sources, Machine& machine);
// Of the job of a batch system that this process belongs to.
void AddBatchFindings(const Sources& sources, Machine& machine);
// The models of NVIDIA's devices that the kernel's driver lists, one for each device.
std::vector<std::string> DriverModels(const std::string& root);
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
