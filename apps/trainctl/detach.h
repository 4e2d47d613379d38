// `--detach`: the verb runs in a process of its own session, and this one returns when the first step is
// done. Until then what that process prints, each stream to its own, and Ctrl-C pass between the two;
// afterwards both of its streams go to <run>/logs/launcher.log.
//
// The detached process is the same program with the same arguments; TRAINCTL_DETACHED_FD in its environment
// is the pipe on which it names its run folder once the first step is done.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "apps/trainctl/command.h"
#include "launcher/console.h"
#include "run/run_folder.h"

namespace trainctl::cli {

// Finds out, once and before anything else, whether this process is the detached one of a launcher that was
// given --detach (`detach`, of its own arguments, which are the same), and takes the pipe out of the
// environment, where nothing that it starts shall find it. Anything but a pipe there is not believed.
bool BeginAsDetached(bool detach);
// What BeginAsDetached found.
bool IsDetached();

// Starts the detached process with this one's arguments. kOk when its first step is done; where it ends
// before, its exit code. The signals of launcher/signal_pipe.h are passed on to it until then.
absl::StatusOr<ExitCode> RunDetached(const Output& output);

// Returns the detached process's console, which shows the job and notifies the waiting process when the first
// step is done. The size of its log is limited like that of a worker's log (WorkerLog::Open).
std::shared_ptr<launcher::JobObserver> MakeDetachedConsole(const run::RunFolder& run,
                                                           int64_t log_limit_bytes);

}  // namespace trainctl::cli
