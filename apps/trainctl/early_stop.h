// Signals while a launch has not begun anything: planning, looking at the data. The process ends at once,
// says that nothing is lost, and exits as one that can be continued, so that scripts which requeue do so.
#pragma once

namespace trainctl::cli {

// From now on SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 (the last three unless they are ignored) end the
// process with exit code 75. `json`: with a report on stdout, too. First thing in main.
void EndOnSignals(bool json);

// The launch begins: call when a launcher::SignalPipe has taken the signals over. Once it has put the
// handlers back, the job is over and its result known: signals change nothing any more.
void BeginLaunch();

// Nothing shall be begun: signals end the process as they end others.
void EndAsUsualOnSignals();

}  // namespace trainctl::cli
