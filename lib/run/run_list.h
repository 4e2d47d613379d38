// What can be told of run folders at a glance: from their journals, their stored recipes and the ends of
// their logs. Only reads and keeps no lock; a folder that cannot be read is told too and is no error. Thread
// safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(std::vector<RunSummary> runs, ListRuns("runs"));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "run/run_progress.h"

namespace trainctl::run {

struct RunSummary {
  std::string name;     // the folder's own
  std::string path;     // absolute
  std::string status;   // of RunStatusName, "interrupted" (its launcher is gone without a word) or "damaged"
  std::string problem;  // what cannot be read, newer checkpoints included; empty: nothing
  absl::Time started = absl::InfinitePast();  // the first launch; InfinitePast: never
  int64_t launches = 0;
  RunProgress progress;
  int64_t checkpoint_step = -1;  // the newest committed one; -1: none
};

// The run folders in `root`, the newest first, or `root` itself where it is a run. UsageError when it is no
// folder.
absl::StatusOr<std::vector<RunSummary>> ListRuns(const std::string& root);

}  // namespace trainctl::run
