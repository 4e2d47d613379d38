// The first process of a container. The kernel leaves it all orphans, and gives it no signal that it has no
// handler for; a program of several processes is not written for that.
#pragma once

namespace trainctl::launcher {

// Does nothing unless this is process 1. There, it returns in a child; the first process itself never
// returns: it hands on the signals that stop a job, reaps whatever ends, and ends as the child does, with its
// exit code or 128 + the signal that ended it. Call it before anything else: before threads, and before
// signals are waited for.
void LeaveInitProcess();

}  // namespace trainctl::launcher
