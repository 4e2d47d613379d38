#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/folder_entries.h"
#include "base/process_limits.h"
#include "base/status.h"
#include "base/units.h"
#include "cluster/task_limits.h"
#include "doctor/findings.h"

namespace trainctl::doctor {
namespace {

using cluster::Host;

constexpr int64_t kGiB = int64_t{1} << 30;
// A worker with its libraries and a small model.
constexpr int64_t kLittleMemory = 2 * kGiB;
// Below this not even the worker with LibTorch starts.
constexpr int64_t kNoMemory = kGiB / 2;
// A checkpoint of a model of a billion parameters takes 12 GB.
constexpr int64_t kLittleDisk = 10 * kGiB;
constexpr int64_t kNoDisk = int64_t{100} << 20;
// Sockets of every pair of workers on a machine, logs and mapped data.
constexpr int64_t kFewFiles = 1024;
constexpr int64_t kFewProcesses = 1024;
// The checkpoint of a small model has files of hundreds of MiB.
constexpr int64_t kLittleFile = kGiB;
// Any clock of today is past it; one that has lost its battery begins decades earlier.
constexpr int kEarliestYear = 2024;

Finding System(const std::string& root) {
  std::string name = "Linux";
  const absl::StatusOr<std::string> release = ReadFile(root + "/etc/os-release", 1 << 16);
  for (absl::string_view line : absl::StrSplit(release.ok() ? *release : "", '\n')) {
    if (!absl::ConsumePrefix(&line, "PRETTY_NAME=")) continue;
    if (absl::ConsumePrefix(&line, "\"")) (void)absl::ConsumeSuffix(&line, "\"");
    name = std::string(line);
  }
  const std::string kernel = ReadFirstLine(root + "/proc/sys/kernel/osrelease");
  return {.name = "system", .value = kernel.empty() ? name : absl::StrCat(name, ", kernel ", kernel)};
}

Finding Cpu(const Host& host) {
  Finding finding{.name = "cpu",
                  .value = absl::StrFormat("%s, %d usable cores, %s", host.cpu.empty() ? "unknown" : host.cpu,
                                           host.allowed_cores, host.native_bf16 ? "bf16" : "no bf16")};
  if (!host.native_bf16) {
    finding.health = Health::kNote;
    finding.advice = "bf16 saves memory but no time on this CPU; train.precision = \"auto\" selects fp32";
  }
  return finding;
}

Finding Memory(const Host& host) {
  Finding finding{.name = "memory",
                  .value = absl::StrCat(FormatBytes(host.memory_available_bytes), " free of ",
                                        FormatBytes(host.memory_total_bytes))};
  if (host.memory_available_bytes < kLittleMemory) {
    finding.health = host.memory_available_bytes < kNoMemory ? Health::kBad : Health::kWarning;
    finding.advice = "too little for a worker and its libraries; close other programs, or use fewer workers";
  }
  return finding;
}

// MemTotal in bytes; 0 where it cannot be read.
int64_t MemoryOfMachine(const std::string& root) {
  std::string line = ReadFirstLine(root + "/proc/meminfo");
  absl::string_view text = line;
  int64_t kib = 0;
  if (!absl::ConsumePrefix(&text, "MemTotal:") || !absl::ConsumeSuffix(&text, "kB")) return 0;
  return absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &kib) ? kib * 1024 : 0;
}

// What a container or a batch system has cut off of the machine.
Finding ControlGroup(const std::string& root, const Host& host) {
  const int64_t machine_bytes = MemoryOfMachine(root);
  const std::string online = ReadFirstLine(root + "/sys/devices/system/cpu/online");
  const bool is_cut = host.memory_total_bytes < machine_bytes;
  const bool is_container = PathExists(root + "/.dockerenv") || PathExists(root + "/run/.containerenv") ||
                            PathExists(root + "/var/run/secrets/kubernetes.io");
  Finding finding{.name = "limits of group",
                  .value = is_cut ? absl::StrCat(FormatBytes(host.memory_total_bytes), " of the machine's ",
                                                 FormatBytes(machine_bytes), " (", host.memory_limit, ")")
                                  : "all of the machine's memory"};
  absl::StrAppend(&finding.value, ", ", host.allowed_cores, " cores",
                  online.empty() ? "" : absl::StrCat(" (the machine has CPUs ", online, ")"),
                  is_container ? ", in a container" : "");
  if (is_cut) {
    finding.health = Health::kNote;
    finding.advice = host.memory_limit == "memory.high"
                         ? "above this limit, the kernel throttles the group's processes; plans stay below it"
                         : "the kernel kills a worker that exceeds this limit; plans stay below it";
  }
  return finding;
}

Finding Overcommit(const std::string& root) {
  const std::string mode = ReadFirstLine(root + "/proc/sys/vm/overcommit_memory");
  Finding finding{.name = "overcommit", .value = mode.empty() ? "unknown" : absl::StrCat("mode ", mode)};
  if (mode == "2") {
    finding.health = Health::kWarning;
    finding.advice =
        "LibTorch and CUDA reserve far more address space than they use; run sysctl vm.overcommit_memory=0";
  }
  return finding;
}

Finding Disk(const Sources& sources) {
  const auto room = sources.room(sources.folder);
  if (!room.ok()) {
    return {"disk", "unknown", Health::kWarning, std::string(room.status().message())};
  }
  const std::string where = absl::StrCat(" in ", sources.folder == "." ? "this folder" : sources.folder);
  Finding finding{.name = "disk",
                  .value = room->is_known() ? absl::StrCat(FormatBytes(room->free_bytes), " free of ",
                                                           FormatBytes(room->total_bytes), where)
                                            : absl::StrCat("the file system reports no size", where)};
  if (!sources.is_writable(sources.folder)) {
    finding.health = Health::kBad;
    finding.advice = "this folder is not writable; change to another folder, or set run.root to another one";
  } else if (!room->is_known()) {
    finding.health = Health::kNote;
    finding.advice = "a launch starts without checking whether checkpoints fit";
  } else if (room->free_bytes < kLittleDisk) {
    finding.health = room->free_bytes < kNoDisk ? Health::kBad : Health::kWarning;
    finding.advice =
        "checkpoints take 12 bytes per parameter, times checkpoint.keep; set run.root to a folder on another "
        "disk";
  }
  return finding;
}

Finding SharedMemory(const Sources& sources, bool has_accelerators) {
  const auto room = sources.room(sources.root + "/dev/shm");
  Finding finding{
      .name = "shared memory",
      .value = room.ok() ? absl::StrCat(FormatBytes(room->total_bytes), " in /dev/shm") : "no /dev/shm"};
  if (room.ok() && !room->is_known()) {
    finding.value = "no limit reported for /dev/shm";
  } else if (!room.ok() || room->total_bytes < kGiB) {
    finding.health = has_accelerators ? Health::kWarning : Health::kNote;
    finding.advice = has_accelerators
                         ? "NCCL exchanges buffers there, about 10 MiB per pair of devices; use docker run "
                           "--shm-size=8g, or mount an emptyDir with medium: Memory at /dev/shm"
                         : "used only by GPU runs";
  }
  return finding;
}

std::string LimitText(const Limit& limit) {
  return !limit.known ? "unknown" : limit.unlimited ? "no limit" : absl::StrCat(limit.soft);
}

Finding OpenFiles(const std::string& root) {
  const Limit limit = ReadLimit(root, "Max open files");
  Finding finding{.name = "open files", .value = LimitText(limit)};
  if (limit.known && !limit.unlimited && limit.soft < kFewFiles) {
    finding.health = Health::kWarning;
    finding.advice = absl::StrCat("many workers need more; run ulimit -n 4096 (this session can raise it to ",
                                  limit.hard, ")");
  }
  return finding;
}

std::string LimitBytesText(const Limit& limit) {
  return !limit.known ? "unknown" : limit.unlimited ? "no limit" : FormatBytes(limit.soft);
}

Finding AddressSpace(const std::string& root) {
  const Limit limit = ReadLimit(root, "Max address space");
  Finding finding{.name = "address space", .value = LimitBytesText(limit)};
  if (!limit.known || limit.unlimited) return finding;
  if (limit.soft < kLeastAddressBytes) {
    finding.health = Health::kBad;
    finding.advice = absl::StrCat("a worker needs more than ", FormatBytes(kLeastAddressBytes),
                                  "; run ulimit -v unlimited (or raise the batch job's h_vmem)");
  } else {
    finding.health = Health::kWarning;
    finding.advice =
        "LibTorch and CUDA reserve far more address space than they use; run ulimit -v unlimited (or raise "
        "the batch job's h_vmem)";
  }
  return finding;
}

Finding FileSize(const std::string& root) {
  const Limit limit = ReadLimit(root, "Max file size");
  Finding finding{.name = "file size", .value = LimitBytesText(limit)};
  if (limit.known && !limit.unlimited && limit.soft < kLittleFile) {
    finding.health = Health::kWarning;
    finding.advice =
        "checkpoint files take gigabytes, and writing past this limit fails; run ulimit -f unlimited";
  }
  return finding;
}

Finding CoreFiles(const std::string& root) {
  const Limit limit = ReadLimit(root, "Max core file size");
  const bool is_off = limit.known && !limit.unlimited && limit.soft == 0;
  Finding finding{.name = "core files", .value = is_off ? "off" : LimitBytesText(limit)};
  // The kernel passes the others to a program, which has its own rules.
  const bool is_file = !absl::StartsWith(ReadFirstLine(root + "/proc/sys/kernel/core_pattern"), "|");
  if (limit.known && !is_off && is_file) {
    finding.health = Health::kNote;
    finding.advice =
        "a worker that crashes leaves a file as large as its memory; run ulimit -c 0 to prevent this";
  }
  return finding;
}

Finding Processes(const std::string& root, const Host& host) {
  const Limit limit = ReadLimit(root, "Max processes");
  Finding finding{.name = "processes", .value = LimitText(limit)};
  if (!limit.known || limit.unlimited) return finding;
  const std::vector<cluster::TaskLimit> limits = cluster::FindTaskLimits(limit.soft, root);
  const bool binds = !limits.empty() && limits.front().name == "ulimit -u";
  if (!binds) {
    absl::StrAppend(&finding.value, ", which does not apply to this user");
    return finding;
  }
  absl::StrAppend(&finding.value, ", ", limits.front().in_use, " in use");
  if (limits.front().room() < std::max(kFewProcesses, cluster::TasksOfRun(host.allowed_cores, 1))) {
    finding.health = Health::kWarning;
    finding.advice = absl::StrCat(
        "threads count toward this limit, and each worker has dozens; run ulimit -u 4096 (this session can "
        "raise it to ",
        limit.hard, ")");
  }
  return finding;
}

// The limit of the control group with the least room.
Finding GroupTasks(const std::string& root, const Host& host) {
  const std::vector<cluster::TaskLimit> limits = cluster::FindTaskLimits(std::nullopt, root);
  const auto least = std::min_element(limits.begin(), limits.end(),
                                      [](const auto& a, const auto& b) { return a.room() < b.room(); });
  if (least == limits.end()) return {.name = "tasks of group", .value = "no limit"};
  Finding finding{.name = "tasks of group",
                  .value = absl::StrCat(least->most, ", ", least->in_use, " in use (", least->name, ")")};
  if (least->room() < cluster::TasksOfRun(host.allowed_cores, 1)) {
    finding.health = Health::kWarning;
    finding.advice =
        "threads count toward this limit, and each worker has dozens; raise docker run --pids-limit, the "
        "kubelet's podPidsLimit, or "
        "systemd's TasksMax";
  }
  return finding;
}

// Pinned buffers of GPUs and RDMA; nothing else needs it.
Finding LockedMemory(const std::string& root, bool is_needed) {
  const Limit limit = ReadLimit(root, "Max locked memory");
  Finding finding{.name = "locked memory", .value = LimitBytesText(limit)};
  if (is_needed && limit.known && !limit.unlimited) {
    finding.health = Health::kWarning;
    finding.advice =
        "RDMA locks its buffers in memory and fails at this limit; set \"* - memlock unlimited\" in "
        "/etc/security/limits.conf, LimitMEMLOCK=infinity for a service, or docker run --ulimit memlock=-1";
  }
  return finding;
}

Finding Clock(const Sources& sources) {
  const std::string source =
      ReadFirstLine(sources.root + "/sys/devices/system/clocksource/clocksource0/current_clocksource");
  Finding finding{
      .name = "clock",
      .value = absl::StrCat(absl::FormatTime("%Y-%m-%d %H:%M UTC", sources.now, absl::UTCTimeZone()),
                            source.empty() ? "" : absl::StrCat(", from ", source))};
  if (sources.now < absl::FromCivil(absl::CivilYear(kEarliestYear), absl::UTCTimeZone())) {
    finding.health = Health::kWarning;
    finding.advice = "run folder names and the order of log lines depend on it; set it, preferably with NTP";
  } else if (source == "hpet" || source == "acpi_pm" || source == "jiffies") {
    finding.health = Health::kWarning;
    finding.advice =
        "reading the clock takes more than a microsecond, which distorts timings; boot with clocksource=tsc";
  }
  return finding;
}

Finding Load(const std::string& root, const Host& host) {
  const std::string line = ReadFirstLine(root + "/proc/loadavg");
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  double load = 0;
  if (!absl::SimpleAtod(words[0], &load))
    return {.name = "load", .value = "unknown", .health = Health::kNote};
  Finding finding{.name = "load", .value = absl::StrFormat("%.1f in the last minute", load)};
  if (load > 0.5 * static_cast<double>(host.allowed_cores)) {
    finding.health = Health::kNote;
    finding.advice = "other programs are running, so measurements would be unreliable";
  }
  return finding;
}

}  // namespace

void AddHostFindings(const Sources& sources, Machine& machine) {
  const std::string& root = sources.root;
  const bool has_accelerators = !machine.accelerators.empty();
  const bool has_rdma = !FolderEntries(root + "/sys/class/infiniband").empty();
  machine.findings.push_back(System(root));
  machine.findings.push_back(Cpu(machine.host));
  machine.findings.push_back(Memory(machine.host));
  machine.findings.push_back(ControlGroup(root, machine.host));
  machine.findings.push_back(Overcommit(root));
  machine.findings.push_back(Disk(sources));
  machine.findings.push_back(SharedMemory(sources, has_accelerators));
  machine.findings.push_back(AddressSpace(root));
  machine.findings.push_back(OpenFiles(root));
  machine.findings.push_back(FileSize(root));
  machine.findings.push_back(Processes(root, machine.host));
  machine.findings.push_back(GroupTasks(root, machine.host));
  machine.findings.push_back(CoreFiles(root));
  machine.findings.push_back(LockedMemory(root, has_rdma));
  machine.findings.push_back(Clock(sources));
  machine.findings.push_back(Load(root, machine.host));
}

}  // namespace trainctl::doctor
