// Adjusts the process's limit on open files.
#pragma once

namespace trainctl {

// Raises this process's soft limit on open files to the hard limit, but not above 65,536, because started
// programs inherit the limit and some of them close every descriptor below it. Best-effort. Must not be
// called concurrently.
void RaiseFileLimit();

}  // namespace trainctl
