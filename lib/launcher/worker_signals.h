// What a worker makes of signals that stop a job. Call once, before other threads.
#pragma once

#include <vector>

namespace trainctl::launcher {

// A batch system, systemd and a terminal signal every process of a job at once. The launcher answers: it has
// the workers save and stop. So workers leave SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 alone, and end at SIGTERM
// only when their parent, the launcher, sends it. SIGPIPE is ignored too: Gloo writes to its peers' sockets
// with writev, and a peer that is gone shall be an error that the worker reports as another's, not its own
// death. SIGXFSZ is ignored so that a file that reaches `ulimit -f` is an error with a name.
void LeaveStoppingToLauncher();

// The same while the program and its libraries load, which takes a while: what the launcher starts a worker
// with. LeaveStoppingToLauncher lets in what was blocked.
std::vector<int> SignalsThatWorkersIgnore();
std::vector<int> SignalsThatWorkersBlock();

// Makes a worker's main thread print its stack to stderr, once LeaveStoppingToLauncher was called.
int ShowStackSignal();
// What a worker writes before its stack, on a line of its own.
inline constexpr char kStackTitle[] = "trainctl-worker: the main thread stands here:";

}  // namespace trainctl::launcher
