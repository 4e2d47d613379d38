#include "trainer/step_runner.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/parameter_groups.h"
#include "optim/lr_schedule.h"
#include "recipe/derive.h"
#include "telemetry/step_trace.h"
#include "trainer/batch_reader.h"
#include "trainer/step_profile.h"

namespace trainctl::trainer {
namespace {

bool Contains(const std::vector<int64_t>& steps, int64_t step) {
  return std::count(steps.begin(), steps.end(), step) > 0;
}

}  // namespace

StepRunner::StepRunner(const WorkerDeps& deps, const device::Device& device, const PlannedRun& planned,
                       parallel::Executor& executor, const RunCounters& counters)
    : deps_(deps),
      recipe_(*deps.recipe),
      device_(device),
      planned_(planned),
      executor_(executor),
      counters_(counters) {
  for (const model::Parameter& parameter : planned_.training.ledger.inventory()) {
    const std::vector<std::string>& spared = recipe_.optimizer.no_decay;
    decay_.push_back(std::none_of(spared.begin(), spared.end(), [&](const std::string& selector) {
      return model::IsSelected(selector, parameter);
    }));
  }
}

absl::StatusOr<ComputedStep> StepRunner::Run(const data::Batch& batch) {
  ComputedStep computed;
  computed.scheduled_lr = optim::LearningRate(recipe::LearningRates(recipe_), counters_.step);
  const parallel::UpdateOptions update = NextUpdate(computed.scheduled_lr);
  computed.lr = update.lr;
  const bool is_first = executor_.executed_hash().empty();
  if (is_first) executor_.HashNextPass();
  TRAINCTL_ASSIGN_OR_RETURN(computed.result, RunProfiled(batch, update, counters_.step + 1));
  if (is_first && executor_.executed_hash() != planned_.plan.step_hash) {
    return InternalError(absl::StrCat("the executor ran step ", executor_.executed_hash(),
                                      ", but the plan is for ", planned_.plan.step_hash));
  }
  return computed;
}

parallel::UpdateOptions StepRunner::NextUpdate(double lr) const {
  parallel::UpdateOptions update;
  update.lr = static_cast<float>(lr);
  update.beta1 = static_cast<float>(recipe_.optimizer.beta1);
  update.beta2 = static_cast<float>(recipe_.optimizer.beta2);
  update.eps = static_cast<float>(recipe_.optimizer.eps);
  update.momentum = static_cast<float>(recipe_.optimizer.momentum);
  update.weight_decay = static_cast<float>(recipe_.optimizer.weight_decay);
  update.decay = decay_;
  update.clip_norm = recipe_.optimizer.clip_norm;
  update.update_number = counters_.updates + 1;
  update.seed = recipe_.run.seed;
  update.z_loss = static_cast<float>(recipe_.train.z_loss);
  return update;
}

absl::StatusOr<parallel::StepResult> StepRunner::RunProfiled(const data::Batch& batch,
                                                             const parallel::UpdateOptions& update,
                                                             int64_t step) {
  std::optional<StepProfile> profile;
  if (Contains(recipe_.metrics.profile_steps, step)) profile.emplace(device_);
  TRAINCTL_ASSIGN_OR_RETURN(parallel::StepResult result, Contains(recipe_.metrics.trace_steps, step)
                                                             ? RunTraced(batch, update, step)
                                                             : Execute(batch, update));
  if (!profile.has_value()) return result;
  TRAINCTL_RETURN_IF_ERROR(deps_.CheckRunFolder());
  TRAINCTL_RETURN_IF_ERROR(profile->Write(deps_.profiles_path, step, deps_.rank));
  return result;
}

absl::StatusOr<parallel::StepResult> StepRunner::RunTraced(const data::Batch& batch,
                                                           const parallel::UpdateOptions& update,
                                                           int64_t step) {
  const schedule::Program& program = planned_.training.ProgramOf(deps_.rank);
  std::vector<telemetry::TracedInstruction> instructions;
  for (const schedule::Instruction& instruction : program.instructions) {
    instructions.push_back({schedule::Describe(instruction), instruction.stream});
  }
  std::vector<std::string> streams;
  for (const schedule::Stream& stream : program.streams) streams.push_back(stream.name);
  telemetry::StepRecorder recorder(std::move(instructions), std::move(streams), deps_.rank, deps_.world_size);
  executor_.SetSpanHook([&recorder](size_t instruction, int64_t begin_ns, int64_t end_ns) {
    recorder.Add(instruction, begin_ns, end_ns);
  });
  recorder.Begin();
  absl::StatusOr<parallel::StepResult> result = Execute(batch, update);
  executor_.SetSpanHook(nullptr);
  TRAINCTL_RETURN_IF_ERROR(result.status());
  TRAINCTL_RETURN_IF_ERROR(deps_.CheckRunFolder());
  TRAINCTL_RETURN_IF_ERROR(recorder.Write(deps_.traces_path, step));
  return result;
}

absl::StatusOr<parallel::StepResult> StepRunner::Execute(const data::Batch& batch,
                                                         const parallel::UpdateOptions& update) {
  return executor_.RunStep(planned_.training.step, MicroBatches(batch, planned_.training), update);
}

}  // namespace trainctl::trainer
