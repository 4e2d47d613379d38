// How many files a process may have open.
#pragma once

namespace trainctl {

// Raises this process's soft limit of open files to the hard one, but to 65,536 at most: programs that it
// starts inherit the limit, and some of them close every number below it. Best effort; not thread safe with
// another call.
void RaiseFileLimit();

}  // namespace trainctl
