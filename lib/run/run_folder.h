// The folder of a run: its names, its lock, its journal. One launch at a time works on a folder;
// whoever only reads needs no lock. Not thread safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(auto run, RunFolder::Create("runs", "llama", RealClock()));
//   TRAINCTL_RETURN_IF_ERROR(run.Lock());
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/lock_owner.h"
#include "checkpoint/examine.h"
#include "run/grant.h"
#include "run/journal.h"
#include "run/opened_folder.h"

namespace trainctl::run {

class RunFolder {
 public:
  // Makes `<root>/<name>-<UTC yyyymmdd-hhmmss>[-n]`, unique also among concurrent callers, and
  // points `<root>/latest` at it. UsageError for a name that is not one path component.
  static absl::StatusOr<RunFolder> Create(const std::string& root, const std::string& name,
                                          const Clock& clock);
  // Makes or takes the named folder (`--run-dir`). UsageError when it holds something that is not a
  // run.
  static absl::StatusOr<RunFolder> CreateAt(const std::string& path);
  // An existing run; an empty path means `runs/latest`. UsageError when there is none.
  static absl::StatusOr<RunFolder> Open(const std::string& path);

  // Points `<root>/latest` at this run, which may lie elsewhere. EnvironmentError where it cannot.
  absl::Status MarkAsLatest(const std::string& root) const;

  // Absolute, without symbolic links.
  const std::string& path() const { return path_; }
  // To be asked before each write of a run: EnvironmentError when the folder was renamed, removed or
  // unmounted since this object was made, or when the grant of this process is void. Thread safe.
  absl::Status CheckInPlace() const;

  // For a launch that has the lock: takes the next term.
  absl::Status BeginTerm();
  int64_t term() const { return grant_ ? grant_->term : 0; }
  // Of a start of its workers, before they hear of it. Synced. Not together with other calls.
  absl::Status RecordGeneration(int64_t generation);
  // For a worker: what its launch has granted.
  void Hold(const Grant& grant) { grant_ = grant; }
  // The part of CheckInPlace that tells whether another launch, or start, has taken the run over.
  absl::Status CheckGranted() const;
  std::string recipe_path() const { return path_ + "/recipe.json"; }
  std::string plan_path() const { return path_ + "/plan.json"; }
  std::string journal_path() const { return path_ + "/journal.jsonl"; }
  std::string metrics_path() const { return path_ + "/metrics.jsonl"; }
  std::string timings_path() const { return path_ + "/timings.jsonl"; }
  std::string checkpoints_path() const { return path_ + "/checkpoints"; }
  std::string logs_path() const { return path_ + "/logs"; }
  std::string log_path(int rank) const;  // logs/rank-00000.log
  std::string tensorboard_path() const { return path_ + "/tensorboard"; }
  std::string traces_path() const { return path_ + "/traces"; }
  std::string profiles_path() const { return path_ + "/profiles"; }
  std::string attention_path() const { return path_ + "/attention.json"; }
  // What the model's folder says besides weights (model_files.h); there is none where it says nothing.
  std::string model_files_path() const { return path_ + "/model-files"; }
  std::string data_path() const { return path_ + "/data.json"; }
  // Documents that took long to read, while the run is not finished (data/kept_documents.h).
  std::string documents_path() const { return path_ + "/documents"; }
  std::string token_path() const { return path_ + "/token"; }

  // What a launch reads or writes here, under whichever name it is reached; also what it has not made yet.
  bool IsOwnFile(const std::string& path) const;

  // Until destruction. Waits a moment for the helper that cleans up after a killed launcher.
  // EnvironmentError names the process that works on the run and what to do; also that of another host which
  // may have gone without a word, and whose lock this host may not see.
  absl::Status Lock();
  // As Lock, but takes that process of another host for gone. A lock that is seen is respected.
  absl::Status TakeOver();

  // Before another process is let in.
  void Unlock() { lock_.reset(); }

  // Whether a launch works on the run, in whichever process, as far as its lock tells on this host.
  enum class Work {
    kNone,
    kSeen,     // the lock is held, and its owner lives or is of another host
    kUnknown,  // another host's process had it and has not said that it let go; only itself can tell
  };
  Work FindWork() const;
  bool IsWorkedOn() const { return FindWork() != Work::kNone; }
  // Whom the lock names.
  LockOwner Owner() const;
  bool locked() const { return lock_.has_value(); }
  int lock_fd() const { return lock_ ? lock_->fd() : -1; }

  // Where the control socket goes: in the folder, or, since a socket's path is limited to 107
  // bytes, in a new private folder under /tmp.
  absl::StatusOr<std::string> MakeSocketPath() const;
  // Removes the socket, and the folder that MakeSocketPath made for it; not that of another run which has the
  // place by now. Best effort.
  void RemoveSocket(const std::string& socket_path) const;
  // Removes the sockets that a killed launcher left behind: this folder's own, and `recorded`, the path in
  // the journal. Removes only this user's sockets, only if nobody listens, and only at paths that
  // MakeSocketPath returns. The caller holds the lock.
  void RemoveStaleSockets(const std::string& recorded) const;
  // Distinguishes the folder from its copies (OpenedFolder::id).
  std::string id() const { return folder_.id(); }

  absl::StatusOr<RunState> ReadState() const;
  // Whether a run in this state may begin at step 1 where no checkpoint can be read. BadDataError when its
  // journal records one: what was trained is not given up without a word.
  absl::Status CheckMayBegin(const RunState& state) const;
  // Renames a file or folder of the run to `<name>.set-aside-<n>`, which is returned. The caller holds the
  // lock.
  absl::StatusOr<std::string> SetAside(const std::string& name);
  // The newest committed checkpoint, and what is wrong with newer ones. Only manifests are read.
  checkpoint::NewestCommitted Checkpoints(int64_t above = -1) const {
    return checkpoint::FindNewestCommitted(checkpoints_path(), above);
  }
  // Its step; -1 when there is none above `above`. Cheap enough to ask each second with the one that is
  // known.
  int64_t NewestCheckpointStep(int64_t above = -1) const { return Checkpoints(above).step; }

 private:
  explicit RunFolder(OpenedFolder folder) : path_(folder.path()), folder_(std::move(folder)) {}
  // Of a path without symbolic links.
  static absl::StatusOr<RunFolder> At(const std::string& resolved);
  std::string lock_path() const { return path_ + "/lock"; }
  absl::Status Lock(bool takes_over);
  std::string path_;
  OpenedFolder folder_;
  std::optional<FileLock> lock_;
  std::optional<Grant> grant_;
};

}  // namespace trainctl::run
