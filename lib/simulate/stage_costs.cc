#include "simulate/stage_costs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "schedule/build_step.h"

namespace trainctl::simulate {
namespace {

absl::Status CheckCosts(const schedule::PipelinePlacement& placement, const PipelineCosts& costs) {
  const size_t num_stages = static_cast<size_t>(placement.num_stages);
  if (costs.stages.size() != 1 && costs.stages.size() != num_stages) {
    return UsageError(absl::StrCat("costs of ", costs.stages.size(), " stages for a pipeline of ", num_stages,
                                   "; give 1 or ", num_stages));
  }
  const auto bad = [](double seconds) { return !std::isfinite(seconds) || seconds < 0; };
  for (size_t s = 0; s < costs.stages.size(); ++s) {
    const StageCosts& stage = costs.stages[s];
    if (bad(stage.forward_s) || bad(stage.input_backward_s) || bad(stage.weight_backward_s) ||
        !std::isfinite(stage.backward_s)) {
      return UsageError(absl::StrCat("costs of stage ", s, " are not finite and non-negative: forward ",
                                     stage.forward_s, " s, input backward ", stage.input_backward_s,
                                     " s, weight backward ", stage.weight_backward_s, " s, backward ",
                                     stage.backward_s, " s"));
    }
  }
  if (bad(costs.send_s) || bad(costs.latency_s) || bad(costs.joined_overlap) || costs.joined_overlap > 1) {
    return UsageError(absl::StrCat("communication costs are out of range: send ", costs.send_s,
                                   " s, latency ", costs.latency_s, " s, joined overlap ",
                                   costs.joined_overlap, " (0 to 1)"));
  }
  return absl::OkStatus();
}

// The table of seconds: a send, then the passes of each stage.
constexpr std::array kPasses = {schedule::Op::kForward, schedule::Op::kBackward, schedule::Op::kBackwardInput,
                                schedule::Op::kBackwardWeight};
uint32_t SecondsIndex(int /*own_class*/, const schedule::Instruction& instruction) {
  if (instruction.op == schedule::Op::kSend) return 0;
  const auto pass = std::find(kPasses.begin(), kPasses.end(), instruction.op);
  TRAINCTL_CHECK(pass != kPasses.end());
  return 1 + static_cast<uint32_t>(instruction.block) * kPasses.size() +
         static_cast<uint32_t>(pass - kPasses.begin());
}

std::vector<double> SecondsTable(const schedule::PipelinePlacement& placement, const PipelineCosts& costs) {
  std::vector<double> seconds = {costs.send_s};
  for (int stage = 0; stage < placement.num_stages; ++stage) {
    for (const schedule::Op op : kPasses) seconds.push_back(costs.Of(stage).SecondsOf(op));
  }
  return seconds;
}

PlayOptions OptionsOf(const PipelineCosts& costs) {
  return {.latency_s = costs.latency_s, .joined_overlap = costs.joined_overlap};
}

}  // namespace

double StageCosts::SecondsOf(schedule::Op op) const {
  switch (op) {
    case schedule::Op::kForward:
      return forward_s;
    case schedule::Op::kBackwardInput:
      return input_backward_s;
    case schedule::Op::kBackwardWeight:
      return weight_backward_s;
    default:
      return backward_s >= 0 ? backward_s : input_backward_s + weight_backward_s;
  }
}

absl::StatusOr<PassList> MakePassList(const schedule::PipelineSchedule& order, bool sends_on_compute) {
  std::vector<PlayProgram> programs;
  TRAINCTL_RETURN_IF_ERROR(schedule::ExpandOrderByClass(
      order, sends_on_compute, [&](int own_class, const schedule::Program& program) {
        programs.push_back(FactsOf(program, own_class, SecondsIndex));
      }));
  TRAINCTL_ASSIGN_OR_RETURN(PlayList list, MakePlayList(order.name, programs, /*groups=*/{}));
  return PassList{order.placement, std::move(list)};
}

absl::StatusOr<Played> PlayPasses(const schedule::Step& step, const PipelineCosts& costs) {
  TRAINCTL_RETURN_IF_ERROR(CheckCosts(step.placement, costs));
  TRAINCTL_ASSIGN_OR_RETURN(const PlayList list, MakePlayList(step, SecondsIndex));
  return Play(list, SecondsTable(step.placement, costs), OptionsOf(costs));
}

absl::StatusOr<double> PlayPassesToEnd(const PassList& passes, const PipelineCosts& costs) {
  TRAINCTL_RETURN_IF_ERROR(CheckCosts(passes.placement, costs));
  return PlayToEnd(passes.list, SecondsTable(passes.placement, costs), OptionsOf(costs));
}

}  // namespace trainctl::simulate
