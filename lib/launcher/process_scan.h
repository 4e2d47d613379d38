// Finding processes in /proc, and files in folders, with system calls alone: no memory is allocated and no
// lock is taken, so that it also works in a process that was forked and never executed anything. Thread safe.
#pragma once

#include <sys/types.h>

namespace trainctl::launcher {

// Its parent; -1 when the process is gone.
pid_t ParentOf(pid_t pid);

// Calls `visit` for every file and folder in `folder`; for none where it cannot be read.
void ForEachEntry(const char* folder, void (*visit)(const char* name, void* context), void* context);

// Calls `visit` for every process of the machine.
void ForEachProcess(void (*visit)(pid_t pid, void* context), void* context);

}  // namespace trainctl::launcher
