// Which of a machine's GPUs CUDA shows to a process: what CUDA_VISIBLE_DEVICES means, for everything that
// counts GPUs, plans for them or places workers near them. Takes the list of GPUs from its caller. Pure;
// thread safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(const VisibleGpus visible, FindVisibleGpus(ReadGpuSelection(std::getenv),
//   gpus));
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cluster/batch_job.h"

namespace trainctl::cluster {

// The environment variables by which a user selects GPUs.
struct GpuSelection {
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES
  // CUDA_DEVICE_ORDER=PCI_BUS_ID: CUDA numbers GPUs as nvidia-smi does. By default CUDA puts the one that it
  // takes for the fastest first.
  bool in_bus_order = false;
};
GpuSelection ReadGpuSelection(const Environment& environment);

// One part of a GPU in MIG mode: a compute instance.
struct MigInstance {
  std::string uuid;  // "MIG-<uuid>"
  std::string path;  // its older name, "MIG-GPU-<uuid>/<GPU instance>/<compute instance>"; empty if unknown
};

// A GPU as the driver lists it.
struct ListedGpu {
  std::string model;
  std::string uuid;  // "GPU-<uuid>"; empty if unknown
  bool in_mig_mode = false;
  std::vector<MigInstance> instances = {};
};

struct VisibleGpu {
  size_t gpu = 0;                  // its index in the list
  std::optional<size_t> instance;  // of `ListedGpu::instances`; empty for a whole GPU
  bool operator==(const VisibleGpu&) const = default;
};

struct VisibleGpus {
  std::vector<VisibleGpu> gpus;  // in CUDA's order: the worker with local rank n opens entry n
  std::string hidden;            // a clause that says what a run does not see and why; empty if it sees all
};

// `listed` is in the order of PCI addresses, as nvidia-smi and the kernel list GPUs. The rules are CUDA's:
// entries are taken in their order until the first that names no GPU, and CUDA shows one MIG instance at
// most. EnvironmentError with advice if
//   - a GPU is named twice or an abbreviated UUID fits several (CUDA then shows none at all),
//   - the list lacks the UUIDs or MIG instances needed to find an entry, or
//   - a number may mean one of several unlike GPUs, because CUDA_DEVICE_ORDER is not PCI_BUS_ID.
absl::StatusOr<VisibleGpus> FindVisibleGpus(const GpuSelection& selection,
                                            absl::Span<const ListedGpu> listed);

}  // namespace trainctl::cluster
