// Reads and writes pipeline schedules as text. Each rank has one line with its passes in order, separated by
// commas:
//
//     0F0,0F1,,0I0,0W0,...      stage, pass (F, B, I or W), micro-batch; an empty cell is idle time
//     (0F8;7B4)OVERLAP_F_B      a forward and a backward that overlap
//
// This is the compute-only CSV format of torch.distributed.pipelining. Its older files use B for the input
// backward, so a B is read as an I if the file has a W, but no I, for the same stage and micro-batch. Pure
// functions; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "schedule/pipeline.h"

namespace trainctl::schedule {

// Parses a schedule. `name` becomes the schedule's name and appears in error messages. A stage belongs to the
// rank on whose line its passes are. If they are on two lines (DualPipe), each line must have one half of the
// micro-batches.
//
// Returns a BadDataError with name:line:column if a cell does not parse, a pass occurs twice, a line has no
// pass, or a pass is on the wrong line. Returns a BadDataError with only the name if the text is empty or the
// forwards do not cover each stage and micro-batch. Use ExpandOrder (build_step.h) and Check (step.h) to find
// out whether the schedule can run.
absl::StatusOr<PipelineSchedule> ReadPipeline(absl::string_view text, absl::string_view name);

// The same from a list with one line per rank. The schedule's name is "passes".
absl::StatusOr<PipelineSchedule> ReadPasses(const std::vector<std::string>& lines);

// Formats a schedule so that ReadPipeline can read it. Idle time is not written.
std::string WritePipeline(const PipelineSchedule& schedule);

}  // namespace trainctl::schedule
