// What can be told of run folders at a glance: from their journals, their stored recipes and the ends of
// their logs. Only reads and keeps no lock; a folder that cannot be read is told too and is no error. Thread
// safe.
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

namespace trainctl::run {

struct RunSummary {
  std::string name;  // the folder's own
  std::string path;  // absolute
  // Of RunStatusName, "interrupted" (its launcher is gone without a word), "unreachable" (it is of another
  // host, and nothing tells whether it still runs) or "damaged".
  std::string status;
  std::string problem;  // what cannot be read, newer checkpoints included; empty: nothing
  absl::Time started = absl::InfinitePast();  // the first launch; InfinitePast: never
  int64_t launches = 0;
  RunProgress progress;
  int64_t checkpoint_step = -1;  // the newest committed one; -1: none
};

// The run folders in `root`, the newest first, or `root` itself where it is a run. UsageError when it is no
// folder. `answers` asks the launcher of a run of which its lock does not tell; it may block.
using AskLauncher = std::function<bool(const RunFolder& run, const RunState& state)>;
absl::StatusOr<std::vector<RunSummary>> ListRuns(const std::string& root,
                                                 const AskLauncher& answers = nullptr);

}  // namespace trainctl::run
