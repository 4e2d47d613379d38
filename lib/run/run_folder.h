// Manages a run folder: its file names, its lock, and its journal. Only one launch at a time can use a
// folder; readers do not take the lock. Not thread-safe, except as noted.
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
  // Creates `<root>/<name>-<UTC yyyymmdd-hhmmss>[-n]` and points `<root>/latest` at it. The name is unique
  // even among concurrent callers. Returns UsageError if `name` is not a single path component.
  static absl::StatusOr<RunFolder> Create(const std::string& root, const std::string& name,
                                          const Clock& clock);
  // Creates the folder at `path`, or reuses it if it exists (`--run-dir`). Returns UsageError if it contains
  // anything other than a run.
  static absl::StatusOr<RunFolder> CreateAt(const std::string& path);
  // Opens an existing run; an empty path means `runs/latest`. Returns UsageError if there is no such run.
  static absl::StatusOr<RunFolder> Open(const std::string& path);

  // Points `<root>/latest` at this run, which need not be in `root`. Returns EnvironmentError on failure.
  absl::Status MarkAsLatest(const std::string& root) const;

  // The absolute path of the folder, with symbolic links resolved.
  const std::string& path() const { return path_; }
  // Checks that this process may still write to the run. Call it before each write. Returns EnvironmentError
  // if the folder was renamed, removed, or unmounted since it was opened, or if this process's grant is void.
  // Thread-safe.
  absl::Status CheckInPlace() const;

  // Claims the next term. The launch must hold the lock.
  absl::Status BeginTerm();
  int64_t term() const { return grant_ ? grant_->term : 0; }
  // Records the generation and syncs it to disk. Call it before starting the generation's workers, and never
  // concurrently with another call.
  absl::Status RecordGeneration(int64_t generation);
  // Sets the grant that this worker received from its launcher.
  void Hold(const Grant& grant) { grant_ = grant; }
  // Checks only whether a later launch or generation has taken over the run (part of CheckInPlace).
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
  // Contains the model's files other than weights (model_files.h). Absent if there are none.
  std::string model_files_path() const { return path_ + "/model-files"; }
  std::string data_path() const { return path_ + "/data.json"; }
  // Contains documents that were slow to read, kept until the run has finished (data/kept_documents.h).
  std::string documents_path() const { return path_ + "/documents"; }
  std::string token_path() const { return path_ + "/token"; }

  // Whether `path` is a file in this folder that a launch reads or writes, even if it does not exist yet or
  // is reached under another name.
  bool IsOwnFile(const std::string& path) const;

  // Takes the lock and holds it until destruction. Waits briefly for the helper that cleans up after a killed
  // launcher. Returns EnvironmentError if another process is using the run, naming the process and the
  // remedy. If that process is on another host, its lock may not be visible here, and it may have died
  // without recording it.
  absl::Status Lock();
  // Like Lock, but assumes that a process on another host has died. Still fails if the lock is visibly held.
  absl::Status TakeOver();

  // Releases the lock so that another process can take it.
  void Unlock() { lock_.reset(); }

  // Whether a process is using the run, as far as this host can tell from the lock.
  enum class Work {
    kNone,
    kSeen,  // the lock is held, and its owner is alive or on another host
    // A process on another host took the lock and has not recorded its release.
    kUnknown,
  };
  Work FindWork() const;
  bool IsWorkedOn() const { return FindWork() != Work::kNone; }
  // Returns the process recorded in the lock file.
  LockOwner Owner() const;
  bool locked() const { return lock_.has_value(); }
  int lock_fd() const { return lock_ ? lock_->fd() : -1; }

  // Returns a path for the control socket: in the run folder or, if that path is longer than
  // kMaxSocketPathBytes or the file system has no sockets, in a new private folder under $TMPDIR or /tmp. If
  // that cannot be created, the path is in the run folder whatever its length (see ShortSocketPath).
  absl::StatusOr<std::string> MakeSocketPath() const;
  // Removes the socket and the private folder created by MakeSocketPath. Does not remove a socket that
  // another run has since created at that path. Best-effort.
  void RemoveSocket(const std::string& socket_path) const;
  // Removes sockets left by a killed launcher: the one in this folder and the one at `recorded`, the path
  // from the journal. Removes a socket only if it belongs to this user, no process is listening on it, and
  // MakeSocketPath could have returned its path. The caller must hold the lock.
  void RemoveStaleSockets(const std::string& recorded) const;
  // Identifies the folder; a copy has a different id (see OpenedFolder::id).
  std::string id() const { return folder_.id(); }

  // Replays the journal. Returns the state of a new run if there is no journal yet.
  absl::StatusOr<RunState> ReadState() const;
  // Checks whether a run in this state may start at step 1 when no checkpoint can be read. Returns
  // BadDataError if the journal records a checkpoint, so that completed training is never discarded silently.
  absl::Status CheckMayBegin(const RunState& state) const;
  // Renames a file or folder in the run to `<name>.set-aside-<n>` and returns the new name. The caller must
  // hold the lock.
  absl::StatusOr<std::string> SetAside(const std::string& name);
  // Returns the newest committed checkpoint after step `above`, along with any problems with newer ones.
  // Reads only manifests.
  checkpoint::NewestCommitted Checkpoints(int64_t above = -1) const {
    return checkpoint::FindNewestCommitted(checkpoints_path(), above);
  }
  // Returns the step of the newest committed checkpoint after step `above`, or -1 if there is none. Cheap
  // enough to call every second with the last known step.
  int64_t NewestCheckpointStep(int64_t above = -1) const { return Checkpoints(above).step; }

 private:
  explicit RunFolder(OpenedFolder folder) : path_(folder.path()), folder_(std::move(folder)) {}
  // Opens a path whose symbolic links have been resolved.
  static absl::StatusOr<RunFolder> At(const std::string& resolved);
  std::string lock_path() const { return path_ + "/lock"; }
  absl::Status Lock(bool takes_over);
  std::string path_;
  OpenedFolder folder_;
  std::optional<FileLock> lock_;
  std::optional<Grant> grant_;
};

}  // namespace trainctl::run
