// Summarizes run folders from their journals, stored recipes, and log tails. Only reads files and takes no
// lock. A folder that cannot be read does not cause an error; it is listed along with its problem.
// Thread-safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(std::vector<RunSummary> runs, ListRuns("runs"));
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "run/journal.h"
#include "run/run_folder.h"
#include "run/run_progress.h"
#include "telemetry/log_follower.h"

namespace trainctl::run {

struct RunSummary {
  std::string name;  // name of the folder
  std::string path;  // absolute path
  // A name from RunStatusName, or one of "interrupted" (the launcher died without recording an outcome),
  // "unreachable" (the launcher is on another host and may still be running), and "damaged".
  std::string status;
  std::string problem;  // problem with the run or a newer checkpoint; empty if none
  // Start of the first launch, or InfinitePast if there was none.
  absl::Time started = absl::InfinitePast();
  int64_t launches = 0;
  RunProgress progress;
  int64_t checkpoint_step = -1;  // newest committed checkpoint; -1 if none
  telemetry::EvaluationsBySet evaluation;
};

// Asks the launcher of `run` whether it is alive. Used if its lock does not settle the question on this host.
// May block.
using AskLauncher = std::function<bool(const RunFolder& run, const RunState& state)>;
// Returns the runs in `root`, newest first, or just `root` if it is itself a run. Returns UsageError if it is
// not a directory.
absl::StatusOr<std::vector<RunSummary>> ListRuns(const std::string& root,
                                                 const AskLauncher& answers = nullptr);

}  // namespace trainctl::run
