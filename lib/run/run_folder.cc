#include "run/run_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/lock_open_file.h"
#include "base/shell_quote.h"
#include "base/status.h"
#include "base/temporary_folder.h"
#include "base/unix_socket.h"

namespace trainctl::run {
namespace {

constexpr char kDefaultLatest[] = "runs/latest";
constexpr absl::string_view kSocketFolder = "/trainctl-XXXXXX";  // as mkdtemp takes it
constexpr char kSocketName[] = "/control.sock";
constexpr absl::Duration kCleanUpWait = absl::Seconds(10);

absl::StatusOr<std::string> RealPath(const std::string& path) {
  char resolved[PATH_MAX];
  if (::realpath(path.c_str(), resolved) == nullptr) return ErrnoError("open folder", path, errno);
  return std::string(resolved);
}

absl::Status MakeSubfolders(const RunFolder& run) {
  TRAINCTL_RETURN_IF_ERROR(MakeDirs(run.logs_path()));
  return MakeDirs(run.checkpoints_path());
}

bool IsEmptyFolder(const std::string& path) {
  DIR* dir = ::opendir(path.c_str());
  if (dir == nullptr) return false;
  int num_entries = 0;
  while (::readdir(dir) != nullptr) ++num_entries;
  ::closedir(dir);
  return num_entries <= 2;
}

// The process has the lock file open. Its number alone proves nothing: another may have got it since.
bool HasOpen(pid_t pid, const std::string& lock_path) {
  struct stat lock;
  if (::stat(lock_path.c_str(), &lock) != 0) return false;
  const std::string fds = absl::StrCat("/proc/", pid, "/fd");
  DIR* dir = ::opendir(fds.c_str());
  if (dir == nullptr) return errno != ENOENT;  // of another user: it may
  bool found = false;
  while (const dirent* entry = ::readdir(dir)) {
    struct stat open_file;
    const std::string path = absl::StrCat(fds, "/", entry->d_name);
    found = found || (::stat(path.c_str(), &open_file) == 0 && open_file.st_dev == lock.st_dev &&
                      open_file.st_ino == lock.st_ino);
  }
  ::closedir(dir);
  return found;
}

// `owner`, of a lock that somebody holds, is gone: what it started holds the lock until it has ended.
bool IsDead(const LockOwner& owner, const std::string& lock_path) {
  if (owner.pid <= 0) return false;
  if (!owner.host.empty()) {
    const LockOwner self = ThisProcessAsOwner();
    if (!HasSameKernel(owner, self) || owner.pid_namespace != self.pid_namespace) return false;
  }
  return !HasOpen(static_cast<pid_t>(owner.pid), lock_path);
}

// "process 12", "process 12 on node1"
std::string Name(const LockOwner& owner) {
  if (owner.pid <= 0) return "another process";
  const bool is_elsewhere = !owner.host.empty() && owner.host != HostName();
  return absl::StrCat("process ", owner.pid, is_elsewhere ? absl::StrCat(" on ", owner.host) : "");
}

// What a launch that was killed in WriteFileAtomic has left. The caller holds the lock.
void RemoveHalfWritten(const std::string& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const size_t dot = name.find(".tmp.");
    if (dot == std::string::npos) continue;
    const std::string whole = name.substr(0, dot);
    if (whole == "recipe.json" || whole == "plan.json" || whole == "data.json" || whole == "report.json") {
      ::unlink(it->path().c_str());
    }
  }
}

// A folder that MakeSocketPath has made, wherever TMPDIR was then.
bool IsInSocketFolder(absl::string_view socket_path) {
  if (!absl::ConsumeSuffix(&socket_path, kSocketName) || socket_path.size() < kSocketFolder.size())
    return false;
  const absl::string_view folder = socket_path.substr(socket_path.size() - kSocketFolder.size());
  const size_t fixed = kSocketFolder.find('X');
  return folder.substr(0, fixed) == kSocketFolder.substr(0, fixed) &&
         folder.find('/', 1) == absl::string_view::npos;
}

// A Unix socket of this user on which nobody listens.
bool IsStaleSocket(const std::string& path) {
  struct stat found;
  if (::lstat(path.c_str(), &found) != 0) return false;
  if (!S_ISSOCK(found.st_mode) || found.st_uid != ::geteuid()) return false;
  const absl::StatusOr<std::string> shorter = ShortSocketPath(path);
  if (!shorter.ok()) return false;
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  shorter->copy(address.sun_path, kMaxSocketPathBytes);
  const int connected = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = errno;
  ::close(fd);
  return connected != 0 && error == ECONNREFUSED;
}

// Whether a socket that keeps other users out can be created in `folder`. Network file systems have none, or
// no modes.
absl::Status TrySocketIn(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/.socket-", ::getpid());
  ::unlink(path.c_str());
  const absl::StatusOr<int> fd = BindPrivateSocket(path);
  if (!fd.ok()) return fd.status();
  ::close(*fd);
  ::unlink(path.c_str());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunFolder> RunFolder::Create(const std::string& root, const std::string& name,
                                            const Clock& clock) {
  if (name.empty() || name == "." || name == ".." || name.size() > 100 ||
      name.find('/') != std::string::npos || name.find('\0') != std::string::npos) {
    return UsageError(absl::StrCat("run.name '", name,
                                   "' is not a valid folder name; use 1 to 100 characters without '/'"));
  }
  TRAINCTL_RETURN_IF_ERROR(MakeDirs(root));
  const std::string stamp = absl::FormatTime("%Y%m%d-%H%M%S", clock.Now(), absl::UTCTimeZone());
  for (int attempt = 1; attempt < 10'000; ++attempt) {
    std::string folder_name = absl::StrCat(name, "-", stamp);
    if (attempt > 1) absl::StrAppend(&folder_name, "-", attempt);
    const std::string path = absl::StrCat(root, "/", folder_name);
    if (::mkdir(path.c_str(), 0755) != 0) {
      if (errno == EEXIST) continue;
      return ErrnoError("create folder", path, errno);
    }
    TRAINCTL_ASSIGN_OR_RETURN(const std::string resolved, RealPath(path));
    TRAINCTL_ASSIGN_OR_RETURN(RunFolder run, At(resolved));
    TRAINCTL_RETURN_IF_ERROR(MakeSubfolders(run));
    TRAINCTL_RETURN_IF_ERROR(run.MarkAsLatest(root));
    return run;
  }
  return EnvironmentError(absl::StrCat("cannot find an unused name for the run in ", root));
}

absl::StatusOr<RunFolder> RunFolder::CreateAt(const std::string& path) {
  if (path.empty()) return UsageError("the name of the run folder is empty");
  // A launch that was refused early leaves the two subfolders and nothing else.
  const bool is_run = PathExists(path + "/logs") && PathExists(path + "/checkpoints");
  if (PathExists(path) && !is_run && !IsEmptyFolder(path)) {
    return UsageError(absl::StrCat(path, " exists and is not a run folder; choose an empty or new folder"));
  }
  TRAINCTL_RETURN_IF_ERROR(MakeDirs(path));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string resolved, RealPath(path));
  TRAINCTL_ASSIGN_OR_RETURN(RunFolder run, At(resolved));
  TRAINCTL_RETURN_IF_ERROR(MakeSubfolders(run));
  return run;
}

absl::StatusOr<RunFolder> RunFolder::Open(const std::string& path) {
  const std::string wanted = path.empty() ? kDefaultLatest : path;
  if (!PathExists(wanted)) {
    return UsageError(path.empty() ? absl::StrCat("there is no run here (", wanted,
                                                  " does not exist); specify the run folder")
                                   : absl::StrCat("no such run folder: ", wanted));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const std::string resolved, RealPath(wanted));
  if (!PathExists(resolved + "/journal.jsonl") && !PathExists(resolved + "/recipe.json")) {
    return UsageError(
        absl::StrCat(wanted, " is not a run folder: it contains neither journal.jsonl nor recipe.json"));
  }
  return At(resolved);
}

absl::StatusOr<RunFolder> RunFolder::At(const std::string& resolved) {
  TRAINCTL_ASSIGN_OR_RETURN(OpenedFolder folder, OpenedFolder::Open(resolved));
  return RunFolder(std::move(folder));
}

absl::Status RunFolder::MarkAsLatest(const std::string& root) const {
  TRAINCTL_RETURN_IF_ERROR(MakeDirs(root));
  TRAINCTL_ASSIGN_OR_RETURN(const std::string folder, RealPath(root));
  const std::filesystem::path path = path_;
  const std::string link = folder + "/latest";
  if (path_ == link) return absl::OkStatus();  // --run-dir runs/latest
  // By its name a run is found also after its folder and the root have moved together.
  const std::string target = path.parent_path() == folder ? path.filename().string() : path_;
  // Replaced in one step, so that a reader always finds one.
  const std::string temporary = absl::StrCat(folder, "/.latest.", ::getpid());
  ::unlink(temporary.c_str());
  if (::symlink(target.c_str(), temporary.c_str()) != 0) return ErrnoError("create", temporary, errno);
  if (::rename(temporary.c_str(), link.c_str()) != 0) {
    const int error_number = errno;
    ::unlink(temporary.c_str());
    return ErrnoError("replace", link, error_number);
  }
  return absl::OkStatus();
}

std::string RunFolder::log_path(int rank) const {
  return absl::StrCat(logs_path(), "/rank-", absl::Dec(rank, absl::kZeroPad5), ".log");
}

bool RunFolder::IsOwnFile(const std::string& path) const {
  static constexpr absl::string_view kOwn[] = {
      "recipe.json",   "plan.json",    "data.json",      "report.json",  "journal.jsonl", "metrics.jsonl",
      "timings.jsonl", "lock",         "token",          "logs",         "traces",        "checkpoints",
      "tensorboard",   "control.sock", "model-files",    "documents",    "admin.json",    "reader.json",
      "launch-id",     "terms",        "batch-job.json", "slurm-job.sh", "profiles"};
  std::error_code error;
  const std::string full =
      std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error).string();
  absl::string_view name = full;
  if (error || !absl::ConsumePrefix(&name, path_ + "/")) return false;
  name = name.substr(0, name.find('/'));
  return std::find(std::begin(kOwn), std::end(kOwn), name) != std::end(kOwn);
}

absl::Status RunFolder::CheckInPlace() const {
  TRAINCTL_RETURN_IF_ERROR(folder_.CheckInPlace());
  return CheckGranted();
}

absl::Status RunFolder::BeginTerm() {
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t term, ClaimTerm(path_));
  grant_ = Grant{term, 0};
  return absl::OkStatus();
}

absl::Status RunFolder::RecordGeneration(int64_t generation) {
  const Grant grant = {term(), generation};
  TRAINCTL_RETURN_IF_ERROR(RecordGrant(path_, grant));
  grant_ = grant;
  return absl::OkStatus();
}

absl::Status RunFolder::CheckGranted() const {
  return grant_ ? CheckGrant(path_, *grant_) : absl::OkStatus();
}

absl::Status RunFolder::Lock() { return Lock(/*takes_over=*/false); }

absl::Status RunFolder::TakeOver() { return Lock(/*takes_over=*/true); }

absl::Status RunFolder::Lock(bool takes_over) {
  if (lock_) return absl::OkStatus();
  const RealClock clock;
  const absl::Duration give_up = clock.Monotonic() + kCleanUpWait;
  const std::string quoted = ShellQuote(path_);
  const auto may_follow = [&](const LockOwner& former) -> absl::Status {
    if (takes_over || HasSurelyEnded(former, ThisProcessAsOwner())) return absl::OkStatus();
    return EnvironmentError(absl::StrCat(
        path_, " has been in use by ", Name(former), " since ",
        absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", former.since, absl::UTCTimeZone()),
        ", which may still be running; only one launch at a time can use a run folder. See: trainctl status ",
        quoted, ", or stop it with: trainctl stop ", quoted, ". If ", former.host,
        " or that process is gone for good, take over the run: trainctl resume ", quoted,
        " --take-over (or launch --or-resume --take-over)"));
  };
  while (true) {
    absl::StatusOr<FileLock> lock = FileLock::TryLock(lock_path(), may_follow);
    if (lock.ok()) {
      lock_ = std::move(lock).value();
      RemoveHalfWritten(path_);
      return absl::OkStatus();
    }
    if (!absl::StrContains(lock.status().message(), "is locked by")) return lock.status();
    const LockOwner owner = Owner();
    if (!IsDead(owner, lock_path()) || clock.Monotonic() > give_up) {
      return EnvironmentError(
          absl::StrCat(path_, " is in use by ", Name(owner),
                       "; only one launch at a time can use a run folder. See: trainctl status ", quoted,
                       ", or stop it with: trainctl stop ", quoted, ", or choose another --run-dir"));
    }
    // Its launcher was killed; what remains of it is being ended.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

LockOwner RunFolder::Owner() const { return ReadLockOwner(lock_path()); }

RunFolder::Work RunFolder::FindWork() const {
  const int fd = ::open(lock_path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return errno == ENOENT ? Work::kNone : Work::kSeen;
  // Shared: two who ask at once do not take each other for a launch.
  const bool is_free = TryLockOpenFile(fd, LockKind::kShared, lock_path()).value_or(false);
  ::close(fd);
  const LockOwner owner = Owner();
  if (is_free) return HasSurelyEnded(owner, ThisProcessAsOwner()) ? Work::kNone : Work::kUnknown;
  // What a killed launcher started holds its lock until it has ended, which is soon.
  return IsDead(owner, lock_path()) ? Work::kNone : Work::kSeen;
}

absl::StatusOr<std::string> RunFolder::MakeSocketPath() const {
  const std::string inside = path_ + kSocketName;
  const absl::Status possible = TrySocketIn(path_);
  if (possible.ok() && inside.size() <= kMaxSocketPathBytes) return inside;
  const size_t most_bytes = kMaxSocketPathBytes - (sizeof(kSocketName) - 1);
  const absl::StatusOr<std::string> folder =
      MakeTemporaryFolder(TemporaryFolders(), kSocketFolder.substr(1), most_bytes);
  if (folder.ok()) return *folder + kSocketName;
  if (possible.ok()) return inside;  // through a descriptor of the run folder
  return Annotate(
      folder.status(),
      absl::StrCat("the run folder cannot hold the control socket (", possible.message(),
                   "), so another folder is needed: set TMPDIR to one that can be written, or put "
                   "the run on another file system with --run-dir"));
}

void RunFolder::RemoveSocket(const std::string& socket_path) const {
  if (socket_path.empty() || (absl::StartsWith(socket_path, path_) && !CheckInPlace().ok())) return;
  ::unlink(socket_path.c_str());
  if (IsInSocketFolder(socket_path)) {
    ::rmdir(socket_path.substr(0, socket_path.rfind('/')).c_str());
  }
}

void RunFolder::RemoveStaleSockets(const std::string& recorded) const {
  const std::string own = path_ + kSocketName;
  if (IsStaleSocket(own)) RemoveSocket(own);
  if (IsInSocketFolder(recorded) && IsStaleSocket(recorded)) RemoveSocket(recorded);
}

absl::StatusOr<RunState> RunFolder::ReadState() const {
  if (!PathExists(journal_path())) return RunState{};
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(journal_path()));
  return ReplayJournal(text, journal_path());
}

absl::Status RunFolder::CheckMayBegin(const RunState& state) const {
  if (state.last_checkpoint_step < 0) return absl::OkStatus();
  const std::vector<std::string> problems = Checkpoints().Problems();
  const std::string missing =
      problems.empty()
          ? absl::StrCat(checkpoints_path(), " contains none. Was it moved, or is a disk not mounted?")
          : absl::StrCat("none in ", checkpoints_path(), " is usable: ", absl::StrJoin(problems, "; "), ".");
  return BadDataError(absl::StrCat(
      journal_path(), " records a checkpoint at step ", state.last_checkpoint_step, ", but ", missing,
      " Restore it and resume, or discard all progress and restart at step 1: trainctl resume ", path_,
      " --from-scratch (or launch --or-resume --from-scratch)"));
}

absl::StatusOr<std::string> RunFolder::SetAside(const std::string& name) {
  TRAINCTL_CHECK(locked());
  const std::string path = absl::StrCat(path_, "/", name);
  int n = 1;
  while (PathExists(absl::StrCat(path, ".set-aside-", n))) ++n;
  std::string aside = absl::StrCat(name, ".set-aside-", n);
  const std::string target = absl::StrCat(path_, "/", aside);
  if (::rename(path.c_str(), target.c_str()) != 0) return ErrnoError("rename to", target, errno);
  TRAINCTL_RETURN_IF_ERROR(SyncDir(path_));
  return aside;
}

}  // namespace trainctl::run
