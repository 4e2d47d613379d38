#include "base/lock_open_file.h"

#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"

namespace trainctl {
namespace {

int LockRange(int fd, struct ::flock* range) { return ::fcntl(fd, F_OFD_SETLK, range); }

// NFS reports ENOLCK if its lock service does not run.
bool LacksLocks(int error_number) {
  static_assert(EOPNOTSUPP == ENOTSUP);
  return error_number == ENOSYS || error_number == EOPNOTSUPP || error_number == ENOLCK;
}

// flock(2) is rejected, too, by file systems and system call filters that know only the other kind. EIO is
// not among these errors: it may come and go, and two processes must not use different kinds.
bool RejectsFlock(int error_number) {
  return LacksLocks(error_number) || error_number == EINVAL || error_number == EPERM;
}

absl::Status NoLocksError(const std::string& path, int error_number) {
  return EnvironmentError(
      absl::StrCat("cannot lock ", path, ": ",
                   LacksLocks(error_number) ? "its file system has no file locks ("
                                            : "the file locks of its file system fail (",
                   std::strerror(error_number),
                   "). Mount Lustre with -o flock, NFS with its lock service or -o local_lock=all (NFSv3: -o "
                   "nolock), or write to another file system (runs: run.root or --run-dir)"));
}

}  // namespace

LockCalls SystemLockCalls() { return {::flock, LockRange}; }

absl::StatusOr<bool> TryLockOpenFile(int fd, LockKind kind, const std::string& path, const LockCalls& calls) {
  const bool is_shared = kind == LockKind::kShared;
  if (calls.lock_file(fd, (is_shared ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  if (!RejectsFlock(errno)) return NoLocksError(path, errno);
  // Not F_SETLK: such a lock is the process's, and goes when it closes any descriptor of the file.
  struct ::flock range = {};
  range.l_type = is_shared ? F_RDLCK : F_WRLCK;
  range.l_whence = SEEK_SET;  // from byte 0 to the end, wherever that will be
  if (calls.lock_range(fd, &range) == 0) return true;
  if (errno == EAGAIN || errno == EACCES) return false;
  return NoLocksError(path, errno);
}

}  // namespace trainctl
