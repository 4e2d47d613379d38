#include "simulate/timeline.h"

#include <algorithm>

#include "simulate/live_memory.h"

namespace trainctl::simulate {

Timeline PlayStep(const schedule::Schedule& schedule, const model::ModelSpec& spec,
                  const layout::Ledger& ledger, const schedule::BuildOptions& options, const Rates& rates) {
  Timeline timeline;
  timeline.times = TimesOfStep(schedule, spec, ledger, options, rates);
  LiveMemory live(schedule);
  timeline.memory.push_back({0, live.bytes()});
  // Values are made and freed by compute instructions, which run in list order.
  for (size_t i = 0; i < schedule.instructions.size(); ++i) {
    const schedule::Instruction& instruction = schedule.instructions[i];
    const InstructionTime& time = timeline.times[i];
    timeline.end_s = std::max(timeline.end_s, time.end_s());
    if (instruction.stream != schedule::StreamId::kCompute) continue;
    timeline.memory.push_back({time.begin_s, live.During(instruction)});
    live.Finish(instruction);
    timeline.memory.push_back({time.end_s(), live.bytes()});
  }
  timeline.step_seconds = timeline.end_s + rates[Resource::kSteps];
  return timeline;
}

}  // namespace trainctl::simulate
