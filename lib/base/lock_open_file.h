// Advisory locks on open files, also on file systems without flock. Thread safe.
#pragma once

#include <fcntl.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace trainctl {

enum class LockKind : uint8_t { kShared, kExclusive };

// The system calls that lock. Tests pass calls that fail.
struct LockCalls {
  int (*lock_file)(int fd, int operation);           // flock
  int (*lock_range)(int fd, struct ::flock* range);  // fcntl with F_OFD_SETLK
};
LockCalls SystemLockCalls();

// Locks the file that is open as `fd`; does not wait. Returns false if the lock of another open file is in
// the way. The lock lasts until all descriptors of this open file are closed, also those that other processes
// inherited. EnvironmentError, with advice, if the file system has no locks; `path` is for messages.
//
// Locks with flock and, if the file system lacks it, with a lock of the open file description. The two do not
// exclude each other on every file system. They need not: flock fails for all processes that use the file
// system, so that all take the same kind. Without flock, an exclusive lock needs a file that is open for
// writing, so a folder cannot have one.
absl::StatusOr<bool> TryLockOpenFile(int fd, LockKind kind, const std::string& path,
                                     const LockCalls& calls = SystemLockCalls());

}  // namespace trainctl
