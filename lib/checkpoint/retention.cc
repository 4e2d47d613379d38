// Listing and removing the checkpoints of a run.

#include <cerrno>
#include <limits>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/examine.h"
#include "checkpoint/file_ops.h"
#include "checkpoint/folder_list.h"
#include "checkpoint/folder_names.h"

namespace trainctl::checkpoint {
namespace {

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
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<CheckpointInfo> named, ListNamed(root));
  std::vector<CheckpointInfo> list;
  for (const CheckpointInfo& info : named) {
    if (IsFolder(info.path)) list.push_back({info.path, info.step, BytesIn(info.path)});
  }
  return list;
}

absl::Status RevokeUnfinished(const std::string& root, FileOps* ops_or_null) {
  FileOps& ops = ops_or_null != nullptr ? *ops_or_null : RealFileOps();
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(root));
  for (const std::string& name : names) {
    const auto parsed = ParseFolderName(name);
    if (!parsed || parsed->kind != FolderKind::kTemporary) continue;
    std::string removed = RemovedNameOf(name);
    // By one rename, since a writer's own may come in the middle of a removal: either is first, and whole.
    if (!removed.empty()) {
      removed = absl::StrCat(root, "/", removed);
      TRAINCTL_RETURN_IF_ERROR(RemoveFolder(ops, removed));
      const std::string path = absl::StrCat(root, "/", name);
      if (ops.Rename(path, removed) != 0 && errno != ENOENT) return ErrnoError("rename to", removed, errno);
    }
    (void)RemoveFolder(ops, removed.empty() ? absl::StrCat(root, "/", name) : removed);
  }
  return absl::OkStatus();
}

namespace {

// The step of the one with the lowest loss, the first of several; -1: none has a loss. Damaged ones do not
// count.
int64_t BestOf(const std::vector<CheckpointInfo>& list, const std::map<int64_t, double>& losses) {
  int64_t best = -1;
  double least = std::numeric_limits<double>::infinity();
  for (const CheckpointInfo& info : list) {
    const auto loss = losses.find(info.step);
    if (loss == losses.end() || !(loss->second < least)) continue;
    if (!Examine(info, Depth::kManifest).usable()) continue;
    best = info.step;
    least = loss->second;
  }
  return best;
}

}  // namespace

absl::Status ApplyRetention(const std::string& root, const Retention& retention, int64_t trusted_step,
                            FileOps* ops_or_null, const std::function<absl::Status()>& may_remove) {
  FileOps& ops = ops_or_null != nullptr ? *ops_or_null : RealFileOps();
  if (retention.keep < 1)
    return UsageError(absl::StrCat("at least one checkpoint must be kept, not ", retention.keep));
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<CheckpointInfo> list, ListCheckpoints(root));
  const int64_t best_step = BestOf(list, retention.losses);
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(root));
  absl::Status first_error;  // one that cannot be removed keeps no other
  std::set<std::string> listed;
  for (const CheckpointInfo& info : list) listed.insert(info.path);
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(root, "/", name);
    const auto parsed = ParseFolderName(name);
    if (!parsed || parsed->kind == FolderKind::kCommitted || listed.count(path) > 0) continue;
    if (may_remove) TRAINCTL_RETURN_IF_ERROR(may_remove());
    first_error.Update(RemoveFolder(ops, path));
  }

  const auto remove = [&](const CheckpointInfo& info) -> absl::Status {
    if (may_remove) TRAINCTL_RETURN_IF_ERROR(may_remove());
    first_error.Update(RemoveCommitted(root, info, ops));
    return absl::OkStatus();
  };
  int64_t num_kept = 0;
  bool have_good = false;
  for (auto info = list.rbegin(); info != list.rend(); ++info) {
    const bool by_count = num_kept < retention.keep;
    const bool by_step = (retention.keep_every_steps > 0 && info->step % retention.keep_every_steps == 0) ||
                         info->step == best_step;
    const bool trusted = info->step == trusted_step;
    // Read in full only until a good one is found, which is at once after a save.
    const Examined examined = trusted ? Examined{.condition = Condition::kGood}
                                      : Examine(*info, have_good ? Depth::kManifest : Depth::kEveryByte);
    if (examined.condition == Condition::kUnreadable) continue;  // not ours to judge: stays
    if (!examined.usable()) {
      // Not good and newer than every good one: stays for a person to look at until training has
      // passed it. Not good and older: of no use.
      if (have_good && !by_step) TRAINCTL_RETURN_IF_ERROR(remove(*info));
      continue;
    }
    const bool newest_good = !have_good;
    have_good = true;
    if (by_count) ++num_kept;
    if (by_count || by_step || newest_good) continue;
    TRAINCTL_RETURN_IF_ERROR(remove(*info));
  }
  return first_error;
}

}  // namespace trainctl::checkpoint
