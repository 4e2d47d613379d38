// Pipeline schedules as text: one line per rank, its passes in order, separated by commas.
//
//     0F0,0F1,,0I0,0W0,...      stage, pass (F, B, I or W), micro-batch; an empty cell is idle time
//     (0F8;7B4)OVERLAP_F_B      a forward and a backward that overlap
//
// This is the compute-only CSV of torch.distributed.pipelining. Its older files write B for I: a B
// whose W is in the file too is read as an I. Pure functions, thread safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "schedule/pipeline.h"

namespace trainctl::schedule {

// `name` stands in messages and becomes the schedule's. The rank of a stage is the line on which it
// runs; a stage that runs on two (DualPipe) has its first half of the micro-batches on one of them.
// BadDataError with name:line:column for anything that does not parse, for a pass that is there
// twice, and where forwards are missing. Whether the order works is for ExpandOrder (build_step.h)
// and Check (step.h) to say.
absl::StatusOr<PipelineSchedule> ReadPipeline(absl::string_view text, absl::string_view name);

// From its lines, one for each rank.
absl::StatusOr<PipelineSchedule> ReadPasses(const std::vector<std::string>& lines);

std::string WritePipeline(const PipelineSchedule& schedule);

}  // namespace trainctl::schedule
