#include "simulate/timeline.h"

#include <algorithm>

namespace trainctl::simulate {

Timeline PlayStep(const schedule::Schedule& schedule, const model::ModelSpec& spec,
                  const layout::Ledger& ledger, const schedule::BuildOptions& options, const Rates& rates) {
  Timeline timeline;
  timeline.times = TimesOfStep(schedule, spec, ledger, options, rates);
  std::array<int64_t, schedule::kNumCategories> live = {};
  const auto count = [&](int value, int64_t sign) {
    const schedule::Value& v = schedule.values[static_cast<size_t>(value)];
    if (!v.persistent) live[static_cast<size_t>(v.category)] += sign * v.bytes;
  };
  for (const schedule::Value& value : schedule.values) {
    if (value.persistent) live[static_cast<size_t>(value.category)] += value.bytes;
  }
  timeline.memory.push_back({0, live});
  // Values are made and freed by compute instructions, which run in list order.
  for (size_t i = 0; i < schedule.instructions.size(); ++i) {
    const schedule::Instruction& instruction = schedule.instructions[i];
    const InstructionTime& time = timeline.times[i];
    timeline.end_s = std::max(timeline.end_s, time.end_s());
    if (instruction.stream != schedule::StreamId::kCompute) continue;
    MemorySample during = {time.begin_s, live};
    during.bytes[static_cast<size_t>(schedule::Category::kActivations)] += instruction.peak_extra_bytes;
    timeline.memory.push_back(during);
    for (int value : instruction.writes) count(value, 1);
    for (int value : instruction.frees) count(value, -1);
    timeline.memory.push_back({time.end_s(), live});
  }
  timeline.step_seconds = timeline.end_s + rates[Resource::kSteps];
  return timeline;
}

}  // namespace trainctl::simulate
