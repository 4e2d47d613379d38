// What a worker makes of signals that stop a job.
#pragma once

namespace trainctl {

// A batch system, systemd and a terminal signal every process of a job at once. The launcher answers: it has
// the workers save and stop. So workers leave SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 alone, and end at SIGTERM
// only when their parent, the launcher, sends it.
void LeaveStoppingToLauncher();

}  // namespace trainctl
