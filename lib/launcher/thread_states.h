// Reads the states of a process's threads from /proc, without cooperation from the process. Both functions
// may block in the kernel, so call them from a separate thread (process_probe.h). Thread-safe.
#pragma once

#include <sys/types.h>

#include <string>

#include "rendezvous/watchdog.h"

namespace trainctl::launcher {

// Samples the process several times within a tenth of a second. The process counts as busy if, in any sample,
// it is traced (by a debugger) or one of its threads is running or is waiting for a core or a disk.
rendezvous::Activity LookAtThreads(pid_t pid);

// Returns a human-readable description of each thread: its state, pending signals, current system call, and
// wait channel in the kernel, and its kernel stack if permissions allow (root only).
std::string DescribeThreads(pid_t pid);

}  // namespace trainctl::launcher
