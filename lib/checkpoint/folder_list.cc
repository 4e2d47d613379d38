#include "checkpoint/folder_list.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "checkpoint/folder_names.h"

namespace trainctl::checkpoint {
namespace {

// Of two entries for one step, the higher one counts; 0: not a checkpoint's.
int Rank(FolderKind kind, bool is_folder) {
  if (kind == FolderKind::kTemporary) return 0;
  if (kind == FolderKind::kReplaced) return is_folder ? 2 : 0;
  return is_folder ? 3 : 1;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  DIR* dir = ::opendir(folder.c_str());
  if (dir == nullptr) {
    if (errno == ENOENT) return names;
    return ErrnoError("open folder", folder, errno);
  }
  while (const dirent* entry = ::readdir(dir)) names.emplace_back(entry->d_name);
  ::closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

bool IsFolder(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

int64_t BytesIn(const std::string& folder) {
  int64_t total = 0;
  const absl::StatusOr<std::vector<std::string>> names = NamesIn(folder);
  if (!names.ok()) return 0;
  for (const std::string& name : *names) {
    struct stat info;
    if (::lstat(absl::StrCat(folder, "/", name).c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
      total += info.st_size;
    }
  }
  return total;
}

absl::StatusOr<std::vector<CheckpointInfo>> ListNamed(const std::string& root) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(root));
  std::map<int64_t, std::pair<int, std::string>> entry_of_step;
  for (const std::string& name : names) {
    const auto parsed = ParseFolderName(name);
    if (!parsed) continue;
    const std::string path = absl::StrCat(root, "/", name);
    const int rank = Rank(parsed->kind, IsFolder(path));
    auto& entry = entry_of_step[parsed->step];
    if (rank > entry.first) entry = {rank, path};
  }
  std::vector<CheckpointInfo> list;
  for (const auto& [step, entry] : entry_of_step) {
    if (entry.first > 0) list.push_back({entry.second, step, 0});
  }
  return list;
}

}  // namespace trainctl::checkpoint
