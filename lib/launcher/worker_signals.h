// Controls how a worker handles the signals that stop a job. Call these functions once, before starting other
// threads.
#pragma once

#include <vector>

namespace trainctl::launcher {

// Leaves it to the launcher to stop the workers. A batch system, systemd, and a terminal signal every process
// of a job at once, and the launcher responds by asking the workers to save and stop. Workers therefore
// ignore SIGINT, SIGHUP, SIGUSR1, and SIGUSR2, and exit on SIGTERM only if it was sent by their parent, the
// launcher.
//
// SIGPIPE is ignored because Gloo writes to its peers' sockets with writev; a worker should report a lost
// peer as an error rather than be killed. SIGXFSZ is ignored so that reaching the file size limit (`ulimit
// -f`) causes an ordinary write error.
void LeaveStoppingToLauncher();

// Return the signals that a worker ignores and blocks while the program and its libraries load, which can
// take a while. LeaveStoppingToLauncher unblocks them.
std::vector<int> SignalsThatWorkersIgnore();
std::vector<int> SignalsThatWorkersBlock();

// Returns the signal that makes a worker's main thread print its stack to stderr. Takes effect once
// LeaveStoppingToLauncher has been called.
int ShowStackSignal();
// The line that a worker writes before its stack.
inline constexpr char kStackTitle[] = "trainctl-worker: stack of the main thread:";

}  // namespace trainctl::launcher
