// Where a run that is continued begins: after its newest checkpoint, at step 1 where it never had one, or
// anew where its checkpoints are lost and the user gives them up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "run/run_folder.h"

namespace trainctl::cli {

struct Start {
  // The last step that is done: that of the newest committed checkpoint, or the one before if a stop or a
  // kill came before that step was evaluated. -1: the run starts at step 1.
  int64_t step = -1;
  bool from_scratch = false;           // what was trained is given up
  std::vector<std::string> set_aside;  // what of the run folder must make room
  std::vector<std::string> changes;    // of the run itself, to be recorded (recipe::RecordedChanges)
  std::vector<std::string> notes;      // to be printed
};

// Only reads. BadDataError when a checkpoint was recorded and none can be used, unless `from_scratch`;
// UsageError when `from_scratch` and there is a good one, which is not given up.
absl::StatusOr<Start> DecideStart(const run::RunFolder& run, bool from_scratch);

// Makes the folder ready for it, and says what was set aside; where there is something to write it takes a
// term first. The caller holds the lock.
absl::Status PrepareStart(run::RunFolder& run, const Start& start);

}  // namespace trainctl::cli
