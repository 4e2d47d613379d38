// The way to a run's launcher: its Unix socket on its own host, the network from others. Whether a run goes
// on, for who follows it. Thread safe, but for RunWatch.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rpc/admin_client.h"
#include "run/run_folder.h"

namespace trainctl::cli {

// Its last launcher is another machine's, by its journal and its lock.
bool IsElsewhere(const run::RunFolder& run, const run::RunState& state);
// "node1 (process 12)"
std::string LauncherName(const run::RunState& state);

// Asks the launcher; blocks for seconds where it does not answer. The error says why it cannot be asked.
absl::StatusOr<rpc::JobStatus> AskLauncher(const run::RunFolder& run, const run::RunState& state);
absl::Status AskToSave(const run::RunFolder& run, const run::RunState& state);
absl::Status AskToStop(const run::RunFolder& run, const run::RunState& state, bool now);

// For a lock of another host that this one may not see (RunFolder::TakeOver): refused while that launcher
// answers.
absl::Status TakeOver(run::RunFolder& run);

// For who reads a run's files as they grow.
class RunWatch {
 public:
  explicit RunWatch(const run::RunFolder& run) : run_(run) {}
  // The run goes on. Of another host's run whose lock tells nothing, the launcher is asked now and then; when
  // it has not answered several times, it does not go on, and stderr has a line that says so.
  bool GoesOn();

 private:
  const run::RunFolder& run_;
  absl::Duration next_ask_ = absl::ZeroDuration();
  int num_silent_ = 0;
};

}  // namespace trainctl::cli
