// Finds the GPUs of a machine that CUDA exposes to a process, based on CUDA_VISIBLE_DEVICES. All code that
// counts GPUs, plans for them or places workers near them uses this. The caller provides the list of GPUs.
// Pure functions; thread-safe.
//
//   const GpuSelection selection = ReadGpuSelection(std::getenv);
//   TRAINCTL_ASSIGN_OR_RETURN(const VisibleGpus visible, FindVisibleGpus(selection, gpus));
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
  // Whether CUDA_DEVICE_ORDER is PCI_BUS_ID, with which CUDA numbers GPUs like nvidia-smi. By default, CUDA
  // puts the GPU that it considers fastest first.
  bool in_bus_order = false;
};
GpuSelection ReadGpuSelection(const Environment& environment);

// A compute instance, which is one part of a GPU in MIG mode.
struct MigInstance {
  std::string uuid;  // "MIG-<uuid>"
  // The older form of its name, "MIG-GPU-<uuid>/<GPU instance>/<compute instance>"; empty if unknown.
  std::string path;
};

// A GPU as the driver lists it.
struct ListedGpu {
  std::string model;
  std::string uuid;  // "GPU-<uuid>"; empty if unknown
  bool in_mig_mode = false;
  std::vector<MigInstance> instances = {};
};

struct VisibleGpu {
  size_t gpu = 0;                  // index into the list of GPUs
  std::optional<size_t> instance;  // index into ListedGpu::instances; nullopt for a whole GPU
  bool operator==(const VisibleGpu&) const = default;
};

struct VisibleGpus {
  // Visible GPUs in CUDA's order; the worker with local rank n opens entry n.
  std::vector<VisibleGpu> gpus;
  // A clause that names the GPUs hidden from a run, and why; empty if all are visible.
  std::string hidden;
};

// Finds the visible GPUs. `listed` must be in the order of PCI addresses, like the lists of nvidia-smi and
// the kernel. The rules are CUDA's: entries are used in order up to the first one that does not name a GPU,
// and at most one MIG instance is visible. Returns EnvironmentError with advice if
//   - a GPU is named twice or an abbreviated UUID matches several (CUDA then exposes none at all),
//   - the list lacks the UUIDs or MIG instances needed to find an entry, or
//   - a number is ambiguous because the GPUs differ and CUDA_DEVICE_ORDER is not PCI_BUS_ID.
absl::StatusOr<VisibleGpus> FindVisibleGpus(const GpuSelection& selection,
                                            absl::Span<const ListedGpu> listed);

}  // namespace trainctl::cluster
