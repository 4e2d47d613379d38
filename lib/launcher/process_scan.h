// Finding processes in /proc with system calls alone: no memory is allocated and no lock is taken,
// so that it also works in a process that was forked and never executed anything. Thread safe.
#pragma once

#include <sys/types.h>

namespace trainctl::launcher {

// True if the process's initial environment contains `text` (a whole "NAME=value" entry).
bool EnvironmentContains(pid_t pid, const char* entry);

// Its parent; -1 when the process is gone.
pid_t ParentOf(pid_t pid);

// Calls `visit` for every process of the machine.
void ForEachProcess(void (*visit)(pid_t pid, void* context), void* context);

// Sends SIGKILL to `pid` if it is still a process with that environment entry.
bool KillIfMarked(pid_t pid, const char* entry);

}  // namespace trainctl::launcher
