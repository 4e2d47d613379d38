#include "simulate/timeline.h"

#include <algorithm>
#include <utility>

#include "simulate/live_memory.h"

namespace trainctl::simulate {

Timeline PlayStep(const schedule::Step& step, const layout::Ledger& ledger,
                  const schedule::BuildOptions& options, const Rates& rates, int own_class) {
  const size_t c = static_cast<size_t>(own_class);
  const schedule::Program& program = step.programs[c];
  Timeline timeline;
  timeline.times = std::move(PlayAtRates(step, ledger, options, rates).classes[c].times);
  LiveMemory live(program);
  timeline.memory.push_back({0, live.bytes()});
  // Values are made and freed by compute instructions, which run in list order, and by the messages between
  // them.
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const schedule::Instruction& instruction = program.instructions[i];
    const InstructionTime& time = timeline.times[i];
    timeline.end_s = std::max(timeline.end_s, time.end_s());
    const bool computes = instruction.stream == schedule::kComputeStream;
    if (computes) timeline.memory.push_back({time.begin_s, live.During(instruction)});
    live.Finish(instruction);
    if (computes) timeline.memory.push_back({time.end_s(), live.bytes()});
  }
  timeline.step_seconds = timeline.end_s + rates[Resource::kSteps];
  return timeline;
}

}  // namespace trainctl::simulate
