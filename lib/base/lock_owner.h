// Who holds a lock file, written into the file: another machine that sees the file may not see the lock.
// Thread safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainctl {

struct LockOwner {
  int64_t pid = 0;   // 0: not known
  std::string host;  // empty: nothing is known but the pid, as of an owner that has let go
  std::string boot_id;
  std::string pid_namespace;  // in which `pid` counts
  absl::Time since = absl::InfinitePast();
};

LockOwner ThisProcessAsOwner();

// One line; the other way round, whatever the text is.
std::string FormatLockOwner(const LockOwner& owner);
LockOwner ParseLockOwner(absl::string_view text);
// Of a lock file; nothing is known where it cannot be read.
LockOwner ReadLockOwner(const std::string& path);

// One kernel keeps the locks of both: what flock says is all there is to know.
bool HasSameKernel(const LockOwner& a, const LockOwner& b);
// `owner`, who is not seen to hold the lock from `self`, has certainly ended: it is of this kernel, or of
// this host before it was started again. Another host's lock may just not be seen.
bool HasSurelyEnded(const LockOwner& owner, const LockOwner& self);

// The name that this machine has for itself; empty where there is none.
std::string HostName();

}  // namespace trainctl
