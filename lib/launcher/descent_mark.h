// Distinguishes processes started by this process's keepers from all others, even after they have been
// reparented. The mark is a hard limit for RLIMIT_RTTIME that is too large to have any effect. Children
// inherit it, and only a process with CAP_SYS_RESOURCE can raise it again. Thread-safe.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

namespace trainctl::launcher {

class DescentMark {
 public:
  // Returns this process's mark, which is the same on every call. The parent must call this before fork(2).
  static const DescentMark& Own();

  // Marks the calling process, which must be a child of the mark's owner. Makes a single system call, so it
  // is safe to call after fork(2) in a multithreaded process. Best-effort.
  void Put() const;

  // Whether there is a mark. False if this process's own limit is already lower than any mark.
  bool exists() const { return mark_ != 0; }
  // Whether process `pid` carries the mark. Returns false if the process is gone or cannot be inspected.
  // Requires exists().
  bool IsOn(pid_t pid) const;

 private:
  DescentMark();
  rlim_t mark_ = 0;  // 0 if there is no mark
};

}  // namespace trainctl::launcher
