// What can be told of run folders at a glance: from their journals, their stored recipes and the ends of
// their logs. Only reads and keeps no lock; a folder that cannot be read is told too and is no error. Thread
// safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(std::vector<RunSummary> runs, ListRuns("runs"));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace trainctl::run {

struct RunSummary {
  std::string name;     // the folder's own
  std::string path;     // absolute
  std::string status;   // of RunStatusName, "interrupted" (its launcher is gone without a word) or "damaged"
  std::string problem;  // what cannot be read, newer checkpoints included; empty: nothing
  absl::Time started = absl::InfinitePast();  // the first launch; InfinitePast: never
  int64_t launches = 0;
  int64_t step = -1;                        // the last one in metrics.jsonl; -1: none
  int64_t total_steps = -1;                 // of the stored recipe; -1: unknown
  std::optional<double> loss;               // of that step; may be infinite or not a number
  std::optional<double> tokens_per_second;  // median of the last steps
  std::optional<double> mfu;                // of the same steps, where it is known
  int64_t checkpoint_step = -1;             // the newest committed one; -1: none
};

// The run folders in `root`, the newest first, or `root` itself where it is a run. UsageError when it is no
// folder.
absl::StatusOr<std::vector<RunSummary>> ListRuns(const std::string& root);

}  // namespace trainctl::run
