#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/folder_entries.h"
#include "base/units.h"
#include "cluster/kernel_gpus.h"
#include "doctor/findings.h"

namespace trainctl::doctor {
namespace {

// The LibTorch that ./dev fetches is built for CUDA 13.0.
constexpr int kCudaOfLibTorch = 13000;
constexpr char kDriverOfLibTorch[] = "580";

}  // namespace

std::vector<cluster::ListedGpu> ListGpus(const absl::StatusOr<CudaDriver>& driver, const std::string& root) {
  std::vector<cluster::ListedGpu> listed;
  if (!driver.ok()) {
    for (cluster::KernelGpu& found : cluster::ListGpusOfKernel(root)) listed.push_back(std::move(found.gpu));
    return listed;
  }
  for (const CudaDevice& device : driver->devices) {
    cluster::ListedGpu gpu{device.name, device.uuid, device.in_mig_mode};
    for (const CudaDevice& instance : device.instances) {
      gpu.instances.push_back({instance.uuid, instance.instance_path});
    }
    listed.push_back(std::move(gpu));
  }
  return listed;
}

std::string ModelOf(const cluster::VisibleGpu& gpu, const absl::StatusOr<CudaDriver>& driver,
                    const std::vector<cluster::ListedGpu>& listed) {
  return gpu.instance.has_value() ? driver->devices[gpu.gpu].instances[*gpu.instance].name
                                  : listed[gpu.gpu].model;
}

cluster::GpuSelection SelectionOf(const Sources& sources) {
  return cluster::ReadGpuSelection(sources.environment ? sources.environment : std::getenv);
}

namespace {

Finding Accelerators(Machine& machine) {
  if (machine.accelerators.empty()) {
    const bool are_hidden = !machine.visible.ok() || !machine.visible->hidden.empty();
    return {"accelerators", are_hidden ? "none visible to a run" : "none found", Health::kNote,
            "workers compute on the CPU"};
  }
  const std::string& model = machine.accelerators[0];
  Finding finding{.name = "accelerators", .value = absl::StrCat(machine.accelerators.size(), " x ", model)};
  const absl::StatusOr<cluster::DeviceMatch> match = cluster::FindDevice(model);
  if (match.ok()) {
    machine.device = match->device;
    finding.advice = absl::StrCat("in the catalogue as cluster.device = \"", match->device->name, "\"");
  } else {
    finding.health = Health::kNote;
    finding.advice =
        "not in the catalogue. To plan for it, set cluster.device to the most similar device in "
        "docs/reference/catalogue.md and override what differs (cluster.memory, cluster.half_flops, ...)";
  }
  const bool alike = std::all_of(machine.accelerators.begin(), machine.accelerators.end(),
                                 [&](const std::string& other) { return other == model; });
  if (!alike) {
    finding.health = Health::kWarning;
    finding.value = absl::StrJoin(machine.accelerators, ", ");
    absl::StrAppend(&finding.advice, "; the devices differ, and a run is as slow as the slowest one");
  }
  return finding;
}

// What the environment hides from a run; for machines where it hides something.
Finding VisibleGpus(const absl::StatusOr<cluster::VisibleGpus>& visible) {
  if (!visible.ok()) {
    return {"visible GPUs", "cannot be determined", Health::kWarning,
            absl::StrCat(visible.status().message(), "; until this is fixed, GPU runs are rejected")};
  }
  return {"visible GPUs", absl::StrCat(visible->gpus.size()), Health::kNote, visible->hidden};
}

std::string CudaText(int version) { return absl::StrFormat("%d.%d", version / 1000, version % 1000 / 10); }

Finding Driver(const std::string& root, const Machine& machine) {
  if (!machine.driver.ok()) {
    const bool is_loaded = PathExists(root + "/proc/driver/nvidia/version");
    if (!is_loaded && machine.driver.status().code() == absl::StatusCode::kNotFound) {
      return {"CUDA driver", "none", Health::kNote, "needed only for GPU runs"};
    }
    Finding finding{.name = "CUDA driver", .value = "does not respond", .health = Health::kWarning};
    finding.advice =
        machine.driver.status().code() == absl::StatusCode::kNotFound
            ? "the kernel module is loaded, but its library libnvidia-ml.so.1 was not found; install the "
              "driver's user-space libraries, or start the container with the NVIDIA runtime (--gpus all)"
            : absl::StrCat(machine.driver.status().message(),
                           "; run nvidia-smi for details. If the kernel module and the libraries have "
                           "different versions, reboot");
    return finding;
  }
  const CudaDriver& driver = *machine.driver;
  Finding finding{
      .name = "CUDA driver",
      .value = absl::StrCat(driver.version, ", CUDA up to ", CudaText(driver.cuda_version), ", ",
                            driver.devices.size(), driver.devices.size() == 1 ? " device" : " devices")};
  if (driver.devices.empty()) {
    finding.health = Health::kWarning;
    finding.advice =
        "the driver lists no device, even without CUDA_VISIBLE_DEVICES; check nvidia-smi and dmesg";
  } else if (driver.cuda_version < kCudaOfLibTorch) {
    finding.health = Health::kWarning;
    finding.advice = absl::StrCat(
        "the LibTorch that ./dev downloads is built for CUDA ", CudaText(kCudaOfLibTorch),
        " and needs driver ", kDriverOfLibTorch,
        " or later; update the driver, or build with TRAINCTL_LIBTORCH set to a LibTorch for CUDA ",
        CudaText(driver.cuda_version));
  }
  return finding;
}

// Of the visible device with the least free memory. `gpus` is not empty.
Finding DeviceMemory(const CudaDriver& driver, const std::vector<cluster::VisibleGpu>& gpus) {
  const auto device_of = [&](const cluster::VisibleGpu& gpu) -> const CudaDevice& {
    const CudaDevice& whole = driver.devices[gpu.gpu];
    return gpu.instance.has_value() ? whole.instances[*gpu.instance] : whole;
  };
  const auto free_bytes = [&](const cluster::VisibleGpu& gpu) {
    return device_of(gpu).memory_bytes - device_of(gpu).used_bytes;
  };
  const cluster::VisibleGpu& fullest = *std::min_element(
      gpus.begin(), gpus.end(), [&](const auto& a, const auto& b) { return free_bytes(a) < free_bytes(b); });
  const CudaDevice& device = device_of(fullest);
  Finding finding{
      .name = "device memory",
      .value = absl::StrCat(FormatBytes(free_bytes(fullest)), " free of ", FormatBytes(device.memory_bytes),
                            driver.devices.size() > 1 ? absl::StrCat(" on device ", fullest.gpu) : "")};
  if (device.used_bytes > device.memory_bytes / 10) {
    finding.health = Health::kWarning;
    finding.advice =
        "another program uses it (see nvidia-smi), so a run would not get the memory its plan assumes";
  }
  return finding;
}

// The first libnccl.so.2 in the folders that are searched; "" when there is none.
std::string FindNccl(const Sources& sources) {
  std::vector<std::string> folders = sources.nccl_folders;
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                             "/usr/local/cuda/lib64", "/usr/local/lib", "/usr/lib"}) {
    folders.push_back(sources.root + folder);
  }
  for (const std::string& folder : folders) {
    const std::string path = folder + "/libnccl.so.2";
    if (PathExists(path)) return path;
  }
  return "";
}

// "2.27.3" of the file's real name libnccl.so.2.27.3; "" when it does not say.
std::string VersionInName(const std::string& path) {
  std::error_code error;
  const std::string real = std::filesystem::canonical(path, error).filename().string();
  const size_t at = real.find(".so.");
  const std::string version = error || at == std::string::npos ? "" : real.substr(at + 4);
  return version == "2" ? "" : version;
}

Finding Nccl(const Sources& sources, const Machine& machine) {
  const std::string path = FindNccl(sources);
  if (!path.empty()) {
    const std::string version = VersionInName(path);
    return {.name = "NCCL", .value = version.empty() ? path : absl::StrCat(version, ", ", path)};
  }
  Finding finding{
      .name = "NCCL", .value = "not found", .health = Health::kNote, .advice = "needed only for GPU runs"};
  if (!machine.accelerators.empty()) {
    finding.health = Health::kWarning;
    finding.advice =
        "GPUs need libnccl.so.2 to exchange gradients; install LibTorch for CUDA or the package libnccl2, or "
        "add the library's folder to LD_LIBRARY_PATH";
  }
  return finding;
}

Finding Network(const std::string& root) {
  std::vector<std::string> up;
  const std::string folder = root + "/sys/class/net";
  for (const std::string& name : FolderEntries(folder)) {
    if (name == "lo" || ReadFirstLine(absl::StrCat(folder, "/", name, "/operstate")) != "up") continue;
    int64_t megabits = 0;
    const bool known =
        absl::SimpleAtoi(ReadFirstLine(absl::StrCat(folder, "/", name, "/speed")), &megabits) && megabits > 0;
    up.push_back(known ? absl::StrFormat("%s (%g Gb/s)", name, static_cast<double>(megabits) / 1000) : name);
  }
  if (up.empty()) {
    return {"network", "only the loopback interface is up", Health::kNote,
            "sufficient for runs on one machine"};
  }
  return {.name = "network", .value = absl::StrJoin(up, ", ")};
}

// Ports of adapters as the kernel shows them: "mlx5_0/1: 400 Gb/sec (4X NDR), InfiniBand".
Finding Rdma(const std::string& root, bool has_accelerators) {
  const std::string folder = root + "/sys/class/infiniband";
  std::vector<std::string> active, inactive;
  for (const std::string& adapter : FolderEntries(folder)) {
    const std::string ports = absl::StrCat(folder, "/", adapter, "/ports");
    for (const std::string& port : FolderEntries(ports)) {
      const std::string at = absl::StrCat(ports, "/", port);
      const std::string name = absl::StrCat(adapter, "/", port);
      // "4: ACTIVE"
      if (!absl::EndsWith(ReadFirstLine(at + "/state"), "ACTIVE")) {
        inactive.push_back(name);
        continue;
      }
      const std::string rate = ReadFirstLine(at + "/rate");
      active.push_back(absl::StrCat(name, ": ", rate.empty() ? "unknown rate" : rate, ", ",
                                    ReadFirstLine(at + "/link_layer")));
    }
  }
  if (active.empty() && inactive.empty()) {
    return {"RDMA", "no adapter", Health::kNote, "machines communicate over TCP"};
  }
  Finding finding{.name = "RDMA", .value = active.empty() ? "no active port" : absl::StrJoin(active, "; ")};
  if (!inactive.empty()) {
    finding.health = active.empty() ? Health::kWarning : Health::kNote;
    finding.advice = absl::StrCat("inactive: ", absl::StrJoin(inactive, ", "),
                                  "; check the cable and, for InfiniBand, the subnet manager (ibstat)");
  } else if (has_accelerators && !PathExists(root + "/sys/module/nvidia_peermem") &&
             !PathExists(root + "/sys/module/nv_peer_mem")) {
    finding.health = Health::kNote;
    finding.advice =
        "without nvidia_peermem, NCCL needs DMA-BUF (kernel 5.12, open driver) to access GPU memory from the "
        "network; run modprobe nvidia_peermem";
  }
  return finding;
}

}  // namespace

void AddDeviceFindings(const Sources& sources, Machine& machine) {
  machine.findings.push_back(Accelerators(machine));
  machine.findings.push_back(Driver(sources.root, machine));
  if (!machine.visible.ok() || !machine.visible->hidden.empty()) {
    machine.findings.push_back(VisibleGpus(machine.visible));
  }
  if (machine.driver.ok() && machine.visible.ok() && !machine.visible->gpus.empty()) {
    machine.findings.push_back(DeviceMemory(*machine.driver, machine.visible->gpus));
  }
  machine.findings.push_back(Nccl(sources, machine));
  machine.findings.push_back(Network(sources.root));
  machine.findings.push_back(Rdma(sources.root, !machine.accelerators.empty()));
}

}  // namespace trainctl::doctor
