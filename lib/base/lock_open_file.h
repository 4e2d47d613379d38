// Advisory locks on open files, including on file systems without flock. Thread-safe.
#pragma once

#include <fcntl.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace trainctl {

enum class LockKind : uint8_t { kShared, kExclusive };

// The system calls used for locking. Tests substitute calls that fail.
struct LockCalls {
  int (*lock_file)(int fd, int operation);           // flock
  int (*lock_range)(int fd, struct ::flock* range);  // fcntl with F_OFD_SETLK
};
LockCalls SystemLockCalls();

// Locks the file that is open as `fd` without blocking. Returns false if another open file has a conflicting
// lock. The lock lasts until all descriptors of this open file are closed, including those inherited by other
// processes. Returns EnvironmentError, with advice, if the file system does not support locks. `path` names
// the file in messages.
//
// Uses flock or, if the file system does not support it, an open file description lock (OFD lock). On some
// file systems the two do not exclude each other, but this is harmless: flock then fails for every process
// that uses the file system, so all of them use the same kind. Without flock, an exclusive lock requires a
// file that is open for writing, so a folder cannot be locked exclusively.
absl::StatusOr<bool> TryLockOpenFile(int fd, LockKind kind, const std::string& path,
                                     const LockCalls& calls = SystemLockCalls());

}  // namespace trainctl
