#include "cluster/task_limits.h"

#include <sys/types.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/folder_entries.h"
#include "cluster/control_groups.h"

namespace trainctl::cluster {
namespace {

constexpr int64_t kMostStatusBytes = 1 << 16;
constexpr uint64_t kRaisesLimits = uint64_t{1} << 24 | uint64_t{1} << 21;  // CAP_SYS_RESOURCE, CAP_SYS_ADMIN

// A run of two workers on two cores had 14 threads in its launcher, a keeper, and 14 or 15 threads in each
// worker. The rest is a margin: libraries hang if a thread is refused. A run under `ulimit -u 42` hung at its
// end.
constexpr int64_t kLauncherTasks = 20;
constexpr int64_t kWorkerTasks = 20;

// Values of a process in /proc/PID/status.
struct Status {
  int64_t user = -1;  // the real one
  int64_t num_threads = 0;
  uint64_t capabilities = 0;  // effective
};

Status ReadStatus(const std::string& folder) {
  Status status;
  const absl::StatusOr<std::string> text = ReadFile(folder + "/status", kMostStatusBytes);
  if (!text.ok()) return status;  // it has ended
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.size() < 2) continue;
    if (words[0] == "Uid:") (void)absl::SimpleAtoi(words[1], &status.user);
    if (words[0] == "Threads:") (void)absl::SimpleAtoi(words[1], &status.num_threads);
    if (words[0] == "CapEff:") (void)absl::SimpleHexAtoi(words[1], &status.capabilities);
  }
  return status;
}

// In its own user namespace a process has no power over the limits of the machine.
bool IsInFirstUserNamespace(const std::string& root) {
  const absl::StatusOr<std::string> text = ReadFile(root + "/proc/self/uid_map", kMostStatusBytes);
  if (!text.ok()) return true;
  const std::vector<absl::string_view> words =
      absl::StrSplit(*text, absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
  return words == std::vector<absl::string_view>{"0", "0", "4294967295"};
}

int64_t CountTasks(const std::string& root, int64_t user) {
  int64_t count = 0;
  for (const std::string& name : FolderEntries(root + "/proc")) {
    if (!std::all_of(name.begin(), name.end(), absl::ascii_isdigit)) continue;
    const Status status = ReadStatus(absl::StrCat(root, "/proc/", name));
    if (status.user == user) count += status.num_threads;
  }
  return count;
}

void AddGroups(const std::string& root, const std::vector<std::string>& folders,
               std::vector<TaskLimit>& limits) {
  for (const std::string& folder : folders) {
    const std::optional<int64_t> most = ReadGroupNumber(folder + "/pids.max");
    if (!most.has_value()) continue;
    limits.push_back({absl::StrCat("pids.max of ", folder.substr(root.size())), *most,
                      ReadGroupNumber(folder + "/pids.current").value_or(0)});
  }
}

}  // namespace

std::vector<TaskLimit> FindTaskLimits(std::optional<int64_t> most_of_user, const std::string& root) {
  std::vector<TaskLimit> limits;
  const Status own = ReadStatus(root + "/proc/self");
  const bool is_exempt =
      IsInFirstUserNamespace(root) && (own.user == 0 || (own.capabilities & kRaisesLimits) != 0);
  if (most_of_user.has_value() && !is_exempt) {
    limits.push_back({"ulimit -u", *most_of_user, CountTasks(root, own.user)});
  }
  const ControlGroups groups = FindControlGroups(root);
  AddGroups(root, groups.unified, limits);
  AddGroups(root, groups.pids, limits);
  return limits;
}

int64_t TasksOfRun(int64_t num_workers, int64_t threads_per_worker) {
  return kLauncherTasks + num_workers * (kWorkerTasks + threads_per_worker - 1);
}

}  // namespace trainctl::cluster
