// Finds processes in /proc and files in folders using only system calls. Does not allocate memory or take
// locks, so it can be used in a forked process before exec. Thread-safe.
#pragma once

#include <sys/types.h>

namespace trainctl::launcher {

// Returns the parent's process id, or -1 if the process is gone.
pid_t ParentOf(pid_t pid);

// Calls `visit` for every file and folder in `folder`. Makes no calls if `folder` cannot be read.
void ForEachEntry(const char* folder, void (*visit)(const char* name, void* context), void* context);

// Calls `visit` for every process on the machine.
void ForEachProcess(void (*visit)(pid_t pid, void* context), void* context);

}  // namespace trainctl::launcher
