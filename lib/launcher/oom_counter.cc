#include "launcher/oom_counter.h"

#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/files.h"

namespace trainctl::launcher {
namespace {

// The number after `key` in a file of lines "key number".
std::optional<int64_t> ReadCount(const std::string& path, absl::string_view key) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return std::nullopt;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    int64_t count = 0;
    if (field.first == key && absl::SimpleAtoi(field.second, &count)) return count;
  }
  return std::nullopt;
}

bool HasWord(absl::string_view list, absl::string_view word) {
  const std::vector<absl::string_view> words = absl::StrSplit(list, ',');
  return absl::c_linear_search(words, word);
}

struct GroupPath {
  bool is_v1 = false;
  std::string path;  // from the root of its hierarchy, as this process sees it
};

// This process's group in the hierarchy that counts memory: a version 1 hierarchy of that name where there is
// one, else version 2 ("0::/path"). A machine may have both, and then version 2 counts no memory.
std::optional<GroupPath> FindGroup(const std::string& root) {
  const absl::StatusOr<std::string> text = ReadFile(root + "/proc/self/cgroup");
  if (!text.ok()) return std::nullopt;
  std::optional<GroupPath> found;
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    if (HasWord(fields[1], "memory")) return GroupPath{true, std::string(fields[2])};
    if (fields[0] == "0" && fields[1].empty()) found = GroupPath{false, std::string(fields[2])};
  }
  return found;
}

// The folder of a group. A mount need not show the whole hierarchy: in a container it often begins at the
// container's own group, while /proc/self/cgroup may name the path from the top.
std::optional<std::string> FindFolder(const std::string& root, const GroupPath& group) {
  const absl::StatusOr<std::string> text = ReadFile(root + "/proc/self/mountinfo");
  if (!text.ok()) return std::nullopt;
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    // 35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    const std::vector<absl::string_view> mount = absl::StrSplit(halves.first, ' ');
    const std::vector<absl::string_view> type = absl::StrSplit(halves.second, ' ');
    if (mount.size() < 5 || type.size() < 3) continue;
    if (type[0] != (group.is_v1 ? "cgroup" : "cgroup2")) continue;
    if (group.is_v1 && !HasWord(type[2], "memory")) continue;
    absl::string_view below = group.path;
    const bool is_shown = mount[3] == "/" || (absl::ConsumePrefix(&below, mount[3]) &&
                                              (below.empty() || absl::StartsWith(below, "/")));
    if (is_shown) return absl::StrCat(root, mount[4], below);
  }
  return std::nullopt;
}

std::optional<int64_t> CountGroup(const std::string& root) {
  const std::optional<GroupPath> group = FindGroup(root);
  if (!group) return std::nullopt;
  const std::optional<std::string> folder = FindFolder(root, *group);
  if (!folder) return std::nullopt;
  if (group->is_v1) return ReadCount(*folder + "/memory.oom_control", "oom_kill");
  // Without the groups below; kernels before 5.2 have the sum alone.
  const std::optional<int64_t> local = ReadCount(*folder + "/memory.events.local", "oom_kill");
  return local ? local : ReadCount(*folder + "/memory.events", "oom_kill");
}

int64_t Increase(const std::optional<int64_t>& before, const std::optional<int64_t>& after) {
  return before && after ? *after - *before : 0;
}

}  // namespace

OomKills CountOomKills(const std::string& root) {
  return {CountGroup(root), ReadCount(root + "/proc/vmstat", "oom_kill")};
}

std::string DescribeSigkill(const OomKills& before, const OomKills& after) {
  if (Increase(before.group, after.group) > 0) return ": the kernel killed it because memory ran out";
  const int64_t on_machine = Increase(before.machine, after.machine);
  if (on_machine > 0) {
    return absl::StrCat(": either another process killed it or memory ran out; the kernel killed ",
                        on_machine, on_machine == 1 ? " process" : " processes",
                        " on this machine in the meantime");
  }
  const bool is_known = (before.group && after.group) || (before.machine && after.machine);
  return is_known
             ? ": another process killed it (no OOM kill was recorded)"
             : ": either another process killed it or memory ran out; this machine does not record which";
}

}  // namespace trainctl::launcher
