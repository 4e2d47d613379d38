// Fuzzes pipeline schedules read from a file: what can be read and expanded is proven or refused, and what is
// proven can be timed and is written back as it was.

#include <cstdint>
#include <string>

#include "base/status.h"
#include "schedule/build_step.h"
#include "schedule/pipeline_file.h"
#include "simulate/stage_costs.h"

namespace trainctl::schedule {
namespace {

void FuzzOne(const std::string& text) {
  const auto schedule = ReadPipeline(text, "fuzz.csv");
  if (!schedule.ok()) {
    TRAINCTL_CHECK(!schedule.status().message().empty());
    return;
  }
  const auto step = ExpandOrder(*schedule);
  if (!step.ok() || !Check(*step).ok()) return;
  simulate::PipelineCosts costs;
  costs.stages = {{.forward_s = 1, .input_backward_s = 1, .weight_backward_s = 1}};
  const auto times = PlayPasses(*step, costs);
  TRAINCTL_CHECK_MSG(times.ok(), times.status().ToString());
  const auto again = ReadPipeline(WritePipeline(*schedule), "again.csv");
  TRAINCTL_CHECK_MSG(again.ok(), again.status().ToString());
  TRAINCTL_CHECK(again->actions == schedule->actions);
}

}  // namespace
}  // namespace trainctl::schedule

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  trainctl::schedule::FuzzOne(std::string(reinterpret_cast<const char*>(data), size_bytes));
  return 0;
}
