// What /proc says of a process's threads, without its help. Both may wait for the kernel: call them from a
// thread of their own (process_probe.h). Thread safe.
#pragma once

#include <sys/types.h>

#include <string>

#include "rendezvous/watchdog.h"

namespace trainctl::launcher {

// Looks several times within a tenth of a second: a process is busy when one of its threads computes, waits
// for a core, or waits for a disk, in any of the looks; or when it is traced (a debugger looks at it).
rendezvous::Activity LookAtThreads(pid_t pid);

// For a person: of each thread its state, the signals that wait for it, the system call it is in, where the
// kernel holds it, and the kernel's stack of it where one may read that (root).
std::string DescribeThreads(pid_t pid);

}  // namespace trainctl::launcher
