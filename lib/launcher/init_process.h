// Supports running as the first process of a container. The kernel reparents all orphans to that process and
// delivers only signals that it handles. A program with several processes expects neither.
#pragma once

namespace trainctl::launcher {

// If this is process 1, forks and returns in the child; otherwise does nothing. The parent never returns. It
// forwards the signals that stop a job, reaps all orphans, and exits when the child does, with the child's
// exit code or 128 plus the signal that killed it. Call this before starting threads and before waiting for
// signals.
void LeaveInitProcess();

}  // namespace trainctl::launcher
