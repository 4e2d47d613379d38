// Listing, choosing and removing the checkpoints of a run.

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/file_ops.h"
#include "checkpoint/folder_names.h"

namespace trainctl::checkpoint {
namespace {

bool IsDamage(const absl::Status& status) { return status.code() == absl::StatusCode::kDataLoss; }

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

absl::Status OpensAs(const CheckpointInfo& info) {
  const absl::StatusOr<CheckpointReader> reader = CheckpointReader::Open(info.path);
  if (!reader.ok()) return reader.status();
  if (reader->meta().step == info.step) return absl::OkStatus();
  return BadDataError(absl::StrCat(info.path, ": holds step ", reader->meta().step, ", not ", info.step));
}

absl::Status VerifyAs(const CheckpointInfo& info) {
  TRAINCTL_RETURN_IF_ERROR(OpensAs(info));
  TRAINCTL_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(info.path));
  return reader.Verify();
}

// Removes a committed folder: first under a name that nobody reads, so that a crash in the middle
// does not leave a committed one with files missing.
absl::Status RemoveCommitted(const std::string& root, const CheckpointInfo& info, FileOps& ops) {
  const std::string removed = absl::StrCat(root, "/", RemovedName(info.step));
  TRAINCTL_RETURN_IF_ERROR(RemoveFolder(ops, removed));
  if (ops.Rename(info.path, removed) != 0) return ErrnoError("rename to", removed, errno);
  TRAINCTL_RETURN_IF_ERROR(SyncFolder(ops, root));
  return RemoveFolder(ops, removed);
}

}  // namespace

absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(const std::string& root) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(root));
  std::map<int64_t, std::string> path_of_step;
  for (const bool replaced : {true, false}) {  // a committed one takes the place of a replaced one
    for (const std::string& name : names) {
      const auto parsed = ParseFolderName(name);
      const std::string path = absl::StrCat(root, "/", name);
      const FolderKind wanted = replaced ? FolderKind::kReplaced : FolderKind::kCommitted;
      if (parsed && parsed->kind == wanted && IsFolder(path)) path_of_step[parsed->step] = path;
    }
  }
  std::vector<CheckpointInfo> list;
  for (auto& [step, path] : path_of_step) list.push_back({path, step, BytesIn(path)});
  return list;
}

absl::StatusOr<CheckpointInfo> FindNewestGood(const std::string& root, std::vector<std::string>* warnings) {
  TRAINCTL_ASSIGN_OR_RETURN(std::vector<CheckpointInfo> list, ListCheckpoints(root));
  if (list.empty()) return absl::NotFoundError(absl::StrCat(root, ": there is no checkpoint"));
  std::string first_reason;
  for (; !list.empty(); list.pop_back()) {
    const absl::Status status = VerifyAs(list.back());
    if (status.ok()) return list.back();
    if (!IsDamage(status)) return status;
    if (first_reason.empty()) first_reason = std::string(status.message());
    if (warnings != nullptr) {
      warnings->push_back(absl::StrCat("checkpoint of step ", list.back().step,
                                       " is damaged and was passed over: ", status.message()));
    }
  }
  return BadDataError(absl::StrCat(root, ": every checkpoint is damaged; the newest: ", first_reason));
}

absl::Status ApplyRetention(const std::string& root, int64_t keep, int64_t keep_every_steps,
                            int64_t trusted_step, FileOps* ops_or_null) {
  FileOps& ops = ops_or_null != nullptr ? *ops_or_null : RealFileOps();
  if (keep < 1) return UsageError(absl::StrCat("at least one checkpoint must be kept, not ", keep));
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<CheckpointInfo> list, ListCheckpoints(root));
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(root));
  absl::Status first_error;  // one that cannot be removed keeps no other
  std::set<std::string> listed;
  for (const CheckpointInfo& info : list) listed.insert(info.path);
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(root, "/", name);
    const auto parsed = ParseFolderName(name);
    if (!parsed || parsed->kind == FolderKind::kCommitted || listed.count(path) > 0) continue;
    first_error.Update(RemoveFolder(ops, path));
  }

  int64_t num_kept = 0;
  bool have_good = false;
  for (auto info = list.rbegin(); info != list.rend(); ++info) {
    absl::Status status = info->step == trusted_step ? absl::OkStatus() : OpensAs(*info);
    const bool by_count = num_kept < keep;
    const bool by_step = keep_every_steps > 0 && info->step % keep_every_steps == 0;
    // Read in full only until a good one is found, which is at once after a save.
    if (status.ok() && !have_good && info->step != trusted_step) status = VerifyAs(*info);
    if (!status.ok() && !IsDamage(status)) continue;  // not ours to judge: stays
    if (!status.ok()) {
      // Damaged and newer than every good one: stays for a person to look at until training has
      // passed it. Damaged and older: of no use.
      if (have_good && !by_step) first_error.Update(RemoveCommitted(root, *info, ops));
      continue;
    }
    const bool newest_good = !have_good;
    have_good = true;
    if (by_count) ++num_kept;
    if (by_count || by_step || newest_good) continue;
    first_error.Update(RemoveCommitted(root, *info, ops));
  }
  return first_error;
}

}  // namespace trainctl::checkpoint
