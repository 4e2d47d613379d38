#include <algorithm>
#include <filesystem>

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
#include "doctor/findings.h"

namespace trainctl::doctor {
namespace {

// The LibTorch that ./dev fetches is built for CUDA 13.0.
constexpr int kCudaOfLibTorch = 13000;
constexpr char kDriverOfLibTorch[] = "580";

}  // namespace

std::vector<std::string> DriverModels(const std::string& root) {
  const std::string folder = root + "/proc/driver/nvidia/gpus";
  std::vector<std::string> models;
  for (const std::string& name : FolderEntries(folder)) {
    const absl::StatusOr<std::string> text =
        ReadFile(absl::StrCat(folder, "/", name, "/information"), 1 << 16);
    if (!text.ok()) continue;
    for (absl::string_view line : absl::StrSplit(*text, '\n')) {
      const std::pair<absl::string_view, absl::string_view> field =
          absl::StrSplit(line, absl::MaxSplits(':', 1));
      if (absl::StripAsciiWhitespace(field.first) == "Model") {
        models.emplace_back(absl::StripAsciiWhitespace(field.second));
      }
    }
  }
  return models;
}

namespace {

Finding Accelerators(Machine& machine) {
  if (machine.accelerators.empty()) {
    return {"accelerators", "none that a driver shows", Health::kNote, "workers compute on the CPU"};
  }
  const std::string& model = machine.accelerators[0];
  Finding finding{.name = "accelerators", .value = absl::StrCat(machine.accelerators.size(), " x ", model)};
  const absl::StatusOr<cluster::DeviceMatch> match = cluster::FindDevice(model);
  if (match.ok()) {
    machine.device = match->device;
    finding.advice = absl::StrCat("in the catalogue: cluster.device = \"", match->device->name, "\"");
  } else {
    finding.health = Health::kNote;
    finding.advice =
        "not in the catalogue: `trainctl plan` needs the nearest device of docs/reference/catalogue.md, and "
        "cluster.memory, half_flops and the like for what differs";
  }
  const bool alike = std::all_of(machine.accelerators.begin(), machine.accelerators.end(),
                                 [&](const std::string& other) { return other == model; });
  if (!alike) {
    finding.health = Health::kWarning;
    finding.value = absl::StrJoin(machine.accelerators, ", ");
    absl::StrAppend(&finding.advice, "; they are not alike, and a run is as slow as the slowest");
  }
  return finding;
}

std::string CudaText(int version) { return absl::StrFormat("%d.%d", version / 1000, version % 1000 / 10); }

Finding Driver(const std::string& root, const Machine& machine) {
  if (!machine.driver.ok()) {
    const bool is_loaded = PathExists(root + "/proc/driver/nvidia/version");
    if (!is_loaded && machine.driver.status().code() == absl::StatusCode::kNotFound) {
      return {"CUDA driver", "none", Health::kNote, "only runs on GPUs need one"};
    }
    Finding finding{.name = "CUDA driver", .value = "does not answer", .health = Health::kWarning};
    finding.advice =
        machine.driver.status().code() == absl::StatusCode::kNotFound
            ? "the kernel's module is loaded, but its library libnvidia-ml.so.1 is not found: install the "
              "driver's user part, or start the container with the NVIDIA runtime (--gpus all)"
            : absl::StrCat(machine.driver.status().message(),
                           "; nvidia-smi says more, and a reboot mends two versions side by side");
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
        "no device to see: CUDA_VISIBLE_DEVICES does not matter here, so look at nvidia-smi and dmesg";
  } else if (driver.cuda_version < kCudaOfLibTorch) {
    finding.health = Health::kWarning;
    finding.advice = absl::StrCat("the LibTorch that ./dev fetches is for CUDA ", CudaText(kCudaOfLibTorch),
                                  " and needs a driver of ", kDriverOfLibTorch,
                                  " or later; update it, or build with "
                                  "TRAINCTL_LIBTORCH at one for CUDA ",
                                  CudaText(driver.cuda_version));
  }
  return finding;
}

Finding DeviceMemory(const CudaDriver& driver) {
  int64_t least_free = driver.devices[0].memory_bytes;
  size_t fullest = 0;
  for (size_t i = 0; i < driver.devices.size(); ++i) {
    const int64_t free_bytes = driver.devices[i].memory_bytes - driver.devices[i].used_bytes;
    if (free_bytes < least_free) {
      least_free = free_bytes;
      fullest = i;
    }
  }
  const CudaDevice& device = driver.devices[fullest];
  Finding finding{
      .name = "device memory",
      .value = absl::StrCat(FormatBytes(least_free), " free of ", FormatBytes(device.memory_bytes),
                            driver.devices.size() > 1 ? absl::StrCat(" on device ", fullest) : "")};
  if (device.used_bytes > device.memory_bytes / 10) {
    finding.health = Health::kWarning;
    finding.advice =
        "another program is on it (nvidia-smi names it): a run would not get what its plan counts with";
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
      .name = "NCCL", .value = "not found", .health = Health::kNote, .advice = "only runs on GPUs need it"};
  if (!machine.accelerators.empty()) {
    finding.health = Health::kWarning;
    finding.advice =
        "GPUs need libnccl.so.2 to exchange gradients: it comes with LibTorch for CUDA, or as the package "
        "libnccl2, or name its folder in LD_LIBRARY_PATH";
  }
  return finding;
}

Finding Network(const std::string& root) {
  std::vector<std::string> up;
  const std::string folder = root + "/sys/class/net";
  for (const std::string& name : FolderEntries(folder)) {
    if (name == "lo" || FirstLine(absl::StrCat(folder, "/", name, "/operstate")) != "up") continue;
    int64_t megabits = 0;
    const bool known =
        absl::SimpleAtoi(FirstLine(absl::StrCat(folder, "/", name, "/speed")), &megabits) && megabits > 0;
    up.push_back(known ? absl::StrFormat("%s (%g Gb/s)", name, static_cast<double>(megabits) / 1000) : name);
  }
  if (up.empty()) {
    return {"network", "no interface is up but the loopback", Health::kNote,
            "enough for runs on one machine"};
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
      if (!absl::EndsWith(FirstLine(at + "/state"), "ACTIVE")) {
        inactive.push_back(name);
        continue;
      }
      const std::string rate = FirstLine(at + "/rate");
      active.push_back(absl::StrCat(name, ": ", rate.empty() ? "unknown rate" : rate, ", ",
                                    FirstLine(at + "/link_layer")));
    }
  }
  if (active.empty() && inactive.empty()) {
    return {"RDMA", "no adapter", Health::kNote, "between machines, TCP is used"};
  }
  Finding finding{.name = "RDMA",
                  .value = active.empty() ? "no port is active" : absl::StrJoin(active, "; ")};
  if (!inactive.empty()) {
    finding.health = active.empty() ? Health::kWarning : Health::kNote;
    finding.advice = absl::StrCat("not active: ", absl::StrJoin(inactive, ", "),
                                  "; look at the cable and, for InfiniBand, at the subnet manager (ibstat)");
  } else if (has_accelerators && !PathExists(root + "/sys/module/nvidia_peermem") &&
             !PathExists(root + "/sys/module/nv_peer_mem")) {
    finding.health = Health::kNote;
    finding.advice =
        "without nvidia_peermem NCCL needs DMA-BUF (kernel 5.12, open driver) to reach a GPU's memory "
        "from the network: modprobe nvidia_peermem";
  }
  return finding;
}

}  // namespace

void AddDeviceFindings(const Sources& sources, Machine& machine) {
  machine.findings.push_back(Accelerators(machine));
  machine.findings.push_back(Driver(sources.root, machine));
  if (machine.driver.ok() && !machine.driver->devices.empty()) {
    machine.findings.push_back(DeviceMemory(*machine.driver));
  }
  machine.findings.push_back(Nccl(sources, machine));
  machine.findings.push_back(Network(sources.root));
  machine.findings.push_back(Rdma(sources.root, !machine.accelerators.empty()));
}

}  // namespace trainctl::doctor
