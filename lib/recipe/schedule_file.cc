#include "recipe/schedule_file.h"

#include <string>
#include <utility>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "schedule/pipeline_file.h"

namespace trainctl::recipe {

absl::Status ReadScheduleFile(const Access& access, Recipe& recipe) {
  ParallelConfig& parallel = recipe.parallel;
  const std::string file = std::exchange(parallel.schedule_file, "");
  if (file.empty()) return absl::OkStatus();
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, access.read_file(file));
  TRAINCTL_ASSIGN_OR_RETURN(const schedule::PipelineSchedule order, schedule::ReadPipeline(text, file));
  const std::string passes = schedule::WritePipeline(order);
  parallel.passes = absl::StrSplit(absl::StripSuffix(passes, "\n"), '\n');
  return absl::OkStatus();
}

}  // namespace trainctl::recipe
