#include "cluster/inspect.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/status.h"
#include "base/units.h"

namespace trainctl::cluster {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
// A worker with its libraries and a small model.
constexpr int64_t kLittleMemory = 2 * kGiB;
// A checkpoint of a model of a billion parameters takes 12 GB.
constexpr int64_t kLittleDisk = 10 * kGiB;
// Sockets of every pair of workers on a machine, logs and mapped data.
constexpr rlim_t kFewFiles = 1024;

std::string FirstLine(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, 1 << 16);
  if (!text.ok()) return "";
  const std::vector<std::string> lines = absl::StrSplit(*text, absl::MaxSplits('\n', 1));
  return std::string(absl::StripAsciiWhitespace(lines[0]));
}

// Names in a folder, sorted; none where there is no such folder.
std::vector<std::string> EntriesOf(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Finding Cpu(const Host& host) {
  Finding finding{.name = "cpu",
                  .value = absl::StrFormat("%s, %d cores to use, %s", host.cpu.empty() ? "unknown" : host.cpu,
                                           host.allowed_cores, host.native_bf16 ? "bf16" : "no bf16")};
  if (!host.native_bf16) {
    finding.health = Health::kNote;
    finding.advice = "bf16 is emulated and slow here; train.precision = \"auto\" takes fp32";
  }
  return finding;
}

Finding Memory(const Host& host) {
  Finding finding{.name = "memory",
                  .value = absl::StrCat(FormatBytes(host.memory_available_bytes), " free of ",
                                        FormatBytes(host.memory_total_bytes))};
  if (host.memory_available_bytes < kLittleMemory) {
    finding.health = Health::kWarning;
    finding.advice = "little for a worker with its libraries; end other programs, or plan for fewer workers";
  }
  return finding;
}

Finding Disk() {
  struct statvfs disk = {};
  if (statvfs(".", &disk) != 0) {
    return {"disk", "unknown", Health::kNote, "the current folder cannot be asked for its free space"};
  }
  const auto free_bytes = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
  Finding finding{.name = "disk", .value = absl::StrCat(FormatBytes(free_bytes), " free in this folder")};
  if (free_bytes < kLittleDisk) {
    finding.health = Health::kWarning;
    finding.advice = "checkpoints take 12 bytes a parameter, times checkpoint.keep; point run.root elsewhere";
  }
  return finding;
}

Finding OpenFiles() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return {"open files", "unknown", Health::kNote, ""};
  Finding finding{.name = "open files",
                  .value = limit.rlim_cur == RLIM_INFINITY ? "no limit" : absl::StrCat(limit.rlim_cur)};
  if (limit.rlim_cur < kFewFiles) {
    finding.health = Health::kWarning;
    finding.advice = "many workers need more; ulimit -n 4096";
  }
  return finding;
}

Finding Load(const std::string& root, const Host& host) {
  const std::string line = FirstLine(root + "/proc/loadavg");
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  double load = 0;
  if (!absl::SimpleAtod(words[0], &load)) return {"load", "unknown", Health::kNote, ""};
  Finding finding{.name = "load", .value = absl::StrFormat("%.1f in the last minute", load)};
  if (load > 0.5 * static_cast<double>(host.allowed_cores)) {
    finding.health = Health::kNote;
    finding.advice = "other programs are at work; do not measure now";
  }
  return finding;
}

// The driver lists its devices as files with a line "Model:   NVIDIA H100 80GB HBM3".
std::vector<std::string> NvidiaModels(const std::string& root) {
  const std::string folder = root + "/proc/driver/nvidia/gpus";
  std::vector<std::string> models;
  for (const std::string& name : EntriesOf(folder)) {
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

Finding Accelerators(const std::string& root, Machine& machine) {
  machine.accelerators = NvidiaModels(root);
  if (machine.accelerators.empty()) {
    return {"accelerators", "none that a driver shows", Health::kNote, "workers compute on the CPU"};
  }
  const std::string& model = machine.accelerators[0];
  Finding finding{.name = "accelerators",
                  .value = absl::StrCat(machine.accelerators.size(), " x ", model),
                  .health = Health::kNote};
  const absl::StatusOr<DeviceMatch> match = FindDevice(model);
  if (match.ok()) machine.device = match->device;
  finding.advice =
      absl::StrCat("this version trains on CPUs; `trainctl plan` plans for ",
                   match.ok() ? absl::StrCat("them as cluster.device = \"", match->device->name, "\"")
                              : std::string("devices of the catalogue, and these are not in it"));
  const bool alike = std::all_of(machine.accelerators.begin(), machine.accelerators.end(),
                                 [&](const std::string& other) { return other == model; });
  if (!alike) {
    finding.health = Health::kWarning;
    finding.value = absl::StrJoin(machine.accelerators, ", ");
    absl::StrAppend(&finding.advice, "; they are not alike, and a run is as slow as the slowest");
  }
  return finding;
}

Finding Network(const std::string& root) {
  std::vector<std::string> up;
  const std::string folder = root + "/sys/class/net";
  for (const std::string& name : EntriesOf(folder)) {
    if (name == "lo" || FirstLine(absl::StrCat(folder, "/", name, "/operstate")) != "up") continue;
    int64_t megabits = 0;
    const bool known =
        absl::SimpleAtoi(FirstLine(absl::StrCat(folder, "/", name, "/speed")), &megabits) && megabits > 0;
    up.push_back(known ? absl::StrFormat("%s (%g Gb/s)", name, static_cast<double>(megabits) / 1000) : name);
  }
  for (const std::string& name : EntriesOf(root + "/sys/class/infiniband"))
    up.push_back(name + " (InfiniBand)");
  if (up.empty()) {
    return {"network", "no interface is up but the loopback", Health::kNote,
            "enough for runs on one machine"};
  }
  return {"network", absl::StrJoin(up, ", "), Health::kGood, ""};
}

}  // namespace

absl::string_view HealthName(Health health) {
  switch (health) {
    case Health::kGood:
      return "ok";
    case Health::kNote:
      return "note";
    case Health::kWarning:
      return "warning";
  }
  return "warning";
}

absl::StatusOr<Machine> InspectMachine(const std::string& root) {
  Machine machine;
  TRAINCTL_ASSIGN_OR_RETURN(machine.host, DetectHost(root));
  machine.findings = {Cpu(machine.host), Memory(machine.host), Disk(), OpenFiles(), Load(root, machine.host)};
  machine.findings.push_back(Accelerators(root, machine));
  machine.findings.push_back(Network(root));
  return machine;
}

std::string ClusterTable(const Machine& machine) {
  if (machine.device == nullptr) {
    return absl::StrFormat("[cluster]\ndevice = \"cpu\"\ndevices_per_node = %d\n",
                           machine.host.allowed_cores);
  }
  return absl::StrFormat("[cluster]\ndevice = \"%s\"\ndevices_per_node = %d\n", machine.device->name,
                         machine.accelerators.size());
}

}  // namespace trainctl::cluster
