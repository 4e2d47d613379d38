// What a process does, from the states of its threads. Read by a thread of its own: a stalled /proc delays
// nobody. Not thread safe.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>

#include "rendezvous/watchdog.h"

namespace trainctl::launcher {

class ActivityProbe {
 public:
  // nullopt while it is not known yet: ask again.
  std::optional<rendezvous::Activity> Of(pid_t pid);

 private:
  struct Answer;
  std::map<pid_t, std::shared_ptr<Answer>> asked_;
};

// Looks several times within a tenth of a second: a process is busy when one of its threads computes, waits
// for a core, or waits for a disk, in any of the looks; or when it is traced (a debugger looks at it).
rendezvous::Activity LookAtThreads(pid_t pid);

}  // namespace trainctl::launcher
