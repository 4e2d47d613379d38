// Records the owner of a lock in the lock file, because another machine that can see the file may not be able
// to see the lock. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainctl {

struct LockOwner {
  int64_t pid = 0;  // 0 if unknown
  // Empty if only the pid is known, as for an owner that has released the lock.
  std::string host;
  std::string boot_id;
  std::string pid_namespace;  // namespace in which `pid` is valid
  absl::Time since = absl::InfinitePast();
};

LockOwner ThisProcessAsOwner();

// Convert an owner to and from one line of text. ParseLockOwner accepts any text.
std::string FormatLockOwner(const LockOwner& owner);
LockOwner ParseLockOwner(absl::string_view text);
// Returns the owner recorded in a lock file. All fields are unknown if the file cannot be read.
LockOwner ReadLockOwner(const std::string& path);

// Whether the same kernel manages the locks of both owners, so that flock is conclusive without this record.
bool HasSameKernel(const LockOwner& a, const LockOwner& b);
// Whether `owner` has certainly exited, given that `self` cannot see its lock: either it ran on this kernel,
// or it ran on this host before the last boot. The lock of an owner on another host may simply be invisible
// here.
bool HasSurelyEnded(const LockOwner& owner, const LockOwner& self);

// Returns this machine's host name; empty if it has none.
std::string HostName();

}  // namespace trainctl
