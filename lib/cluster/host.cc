#include "cluster/host.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/status.h"
#include "cluster/control_groups.h"

namespace trainctl::cluster {
namespace {

// The value of "<key> <number>" or "<key>: <number> kB".
std::optional<int64_t> FindNumber(absl::string_view text, absl::string_view key) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(": \t"), absl::SkipEmpty());
    int64_t value = 0;
    if (words.size() >= 2 && words[0] == key && absl::SimpleAtoi(words[1], &value)) return value;
  }
  return std::nullopt;
}

void LimitMemory(const std::string& folder, const char* limit_file, const char* usage_file,
                 const char* reclaimable_key, Host* host) {
  const std::optional<int64_t> limit = ReadGroupNumber(absl::StrCat(folder, "/", limit_file));
  // "max" is no number; version 1 writes nearly 2^63 for it.
  if (!limit.has_value() || *limit >= host->memory_total_bytes) return;
  host->memory_total_bytes = *limit;
  host->memory_limit = limit_file;
  const int64_t used = ReadGroupNumber(absl::StrCat(folder, "/", usage_file)).value_or(0);
  const absl::StatusOr<std::string> stat = ReadFile(absl::StrCat(folder, "/memory.stat"));
  const int64_t reclaimable = stat.ok() ? FindNumber(*stat, reclaimable_key).value_or(0) : 0;
  const int64_t available = *limit - std::max<int64_t>(0, used - reclaimable);
  host->memory_available_bytes = std::clamp<int64_t>(available, 0, host->memory_available_bytes);
}

void LimitCores(int64_t quota, int64_t period, Host* host) {
  if (quota <= 0 || period <= 0) return;
  host->allowed_cores = std::clamp<int64_t>((quota + period - 1) / period, 1, host->allowed_cores);
}

void ApplyGroups(const std::string& root, Host* host) {
  const ControlGroups groups = FindControlGroups(root);
  for (const std::string& folder : groups.unified) {
    // Beyond memory.high the kernel stops the group's processes again and again to reclaim memory.
    for (const char* limit_file : {"memory.max", "memory.high"}) {
      LimitMemory(folder, limit_file, "memory.current", "inactive_file", host);
    }
    const absl::StatusOr<std::string> text = ReadFile(folder + "/cpu.max");
    if (!text.ok()) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(*text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
    int64_t quota = 0, period = 0;
    if (words.size() == 2 && absl::SimpleAtoi(words[0], &quota) && absl::SimpleAtoi(words[1], &period)) {
      LimitCores(quota, period, host);
    }
  }
  for (const std::string& folder : groups.memory) {
    LimitMemory(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", host);
  }
  for (const std::string& folder : groups.cpu) {
    LimitCores(ReadGroupNumber(folder + "/cpu.cfs_quota_us").value_or(0),
               ReadGroupNumber(folder + "/cpu.cfs_period_us").value_or(0), host);
  }
}

void ReadCpu(const std::string& root, Host* host) {
  const absl::StatusOr<std::string> text = ReadFile(root + "/proc/cpuinfo");
  if (!text.ok()) return;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    const absl::string_view key = absl::StripAsciiWhitespace(field.first);
    if (key == "model name") host->cpu = std::string(absl::StripAsciiWhitespace(field.second));
    if (key != "flags" && key != "Features") continue;
    for (absl::string_view flag : absl::StrSplit(field.second, ' ')) {
      if (flag == "avx512_bf16" || flag == "amx_bf16" || flag == "bf16") host->native_bf16 = true;
    }
    return;  // the processors of a machine are alike
  }
}

int64_t AllowedCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max<int64_t>(1, sysconf(_SC_NPROCESSORS_ONLN));  // more than 1,024 processors
}

}  // namespace

absl::StatusOr<Host> DetectHost(const std::string& root) {
  Host host;
  char name[256] = {0};
  if (gethostname(name, sizeof(name) - 1) == 0) host.name = name;
  host.allowed_cores = AllowedCores();
  const std::string path = root + "/proc/meminfo";
  TRAINCTL_ASSIGN_OR_RETURN(const std::string meminfo, ReadFile(path));
  const std::optional<int64_t> total_kib = FindNumber(meminfo, "MemTotal");
  const std::optional<int64_t> available_kib = FindNumber(meminfo, "MemAvailable");
  if (!total_kib.has_value() || !available_kib.has_value()) {
    return EnvironmentError(absl::StrCat(path, ": MemTotal or MemAvailable is missing"));
  }
  host.memory_total_bytes = *total_kib * 1024;
  host.memory_available_bytes = *available_kib * 1024;
  ReadCpu(root, &host);
  ApplyGroups(root, &host);
  return host;
}

}  // namespace trainctl::cluster
