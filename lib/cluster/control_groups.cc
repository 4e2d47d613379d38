#include "cluster/control_groups.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"

namespace trainctl::cluster {
namespace {

std::vector<std::string> GroupFolders(const std::string& mount, absl::string_view group) {
  std::vector<std::string> folders = {mount};
  std::string folder = mount;
  for (absl::string_view part : absl::StrSplit(group, '/', absl::SkipEmpty())) {
    absl::StrAppend(&folder, "/", part);
    folders.push_back(folder);
  }
  return folders;
}

}  // namespace

ControlGroups FindControlGroups(const std::string& root) {
  ControlGroups groups;
  const std::string mount = root + "/sys/fs/cgroup";
  const absl::StatusOr<std::string> text = ReadFile(root + "/proc/self/cgroup");
  if (!text.ok()) return groups;
  for (absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    if (fields[1].empty()) groups.unified = GroupFolders(mount, fields[2]);
    for (absl::string_view controller : absl::StrSplit(fields[1], ',')) {
      if (controller == "memory") groups.memory = GroupFolders(mount + "/memory", fields[2]);
      if (controller == "cpu") groups.cpu = GroupFolders(mount + "/cpu", fields[2]);
      if (controller == "pids") groups.pids = GroupFolders(mount + "/pids", fields[2]);
    }
  }
  return groups;
}

std::optional<int64_t> ReadGroupNumber(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  int64_t value = 0;
  if (!text.ok() || !absl::SimpleAtoi(absl::StripAsciiWhitespace(*text), &value)) return std::nullopt;
  return value;
}

}  // namespace trainctl::cluster
