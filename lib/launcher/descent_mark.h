// Distinguishes processes that this process's keepers started from all others, even after they are
// reparented. A mark
// is a hard limit of RLIMIT_RTTIME that is too large to limit anything: children inherit it whatever they do,
// and no process without CAP_SYS_RESOURCE can raise it again. Thread safe.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

namespace trainctl::launcher {

class DescentMark {
 public:
  // The mark of this process, the same at each call. The parent must call this before fork(2).
  static const DescentMark& Own();

  // Puts the mark on the calling process, which must be a child of the mark's owner. Makes one system call
  // and may be called after fork(2) in a process with threads. Best effort.
  void Put() const;

  // Whether a mark exists. False if this process's own limit is already lower than any mark.
  bool exists() const { return mark_ != 0; }
  // False if the process is gone or may not be looked at. Requires exists().
  bool IsOn(pid_t pid) const;

 private:
  DescentMark();
  rlim_t mark_ = 0;  // 0: none
};

}  // namespace trainctl::launcher
