#include "verify/run_layout.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status.h"
#include "kernels/kernels.h"
#include "optim/optimizer.h"
#include "parallel/groups.h"
#include "parallel/sharded_state.h"
#include "simulate/memory.h"

namespace trainctl::verify {
namespace {

// Elements of each parameter before the first of it, in the order of the inventory.
std::vector<int64_t> StartsOf(const std::vector<model::Parameter>& inventory) {
  std::vector<int64_t> starts;
  int64_t base = 0;
  for (const model::Parameter& parameter : inventory) {
    starts.push_back(base);
    base += parameter.numel;
  }
  return starts;
}

void CopyOut(const device::Device& device, DType dtype, const void* from, int64_t count, double* to) {
  if (dtype == DType::kF64) return device.CopyToHost(to, from, count * DTypeBytes(dtype));
  std::vector<std::byte> bytes(static_cast<size_t>(count * DTypeBytes(dtype)));
  device.CopyToHost(bytes.data(), from, count * DTypeBytes(dtype));
  std::vector<float> values(static_cast<size_t>(count));
  kernels::Cpu().For(dtype).assign(values.data(), bytes.data(), count);
  std::copy(values.begin(), values.end(), to);
}

// Copies what this rank would write into a checkpoint, run by run, from where its shards lie.
template <typename SourceOf>  // const void*(bucket)
void Gather(const parallel::ShardedState& state, const device::Device& device, const layout::Ledger& ledger,
            DType dtype, const SourceOf& source_of, double* target) {
  const std::vector<int64_t> starts = StartsOf(ledger.inventory());
  for (const layout::HeldBox& held : ledger.BoxesToWrite(state.rank())) {
    const model::Parameter& parameter = ledger.inventory()[static_cast<size_t>(held.parameter)];
    const layout::Runs runs(held.box, layout::WholeBox(parameter.shape), held.box);
    for (int64_t r = 0; r < runs.size(); ++r) {
      const layout::Run run = runs[r];
      const char* const source = static_cast<const char*>(source_of(held.bucket));
      CopyOut(device, dtype, source + (held.offset + run.to) * DTypeBytes(dtype), run.count,
              target + starts[static_cast<size_t>(held.parameter)] + run.from);
    }
  }
}

std::vector<nn::TokenView> ViewsOf(const Trial& trial, const Batch& batch, int rank) {
  const layout::Layout& layout = trial.layout;
  const int64_t first = layout.mesh.data_index(rank) * layout.num_micro_batches * layout.micro_batch;
  std::vector<nn::TokenView> views;
  for (int64_t m = 0; m < layout.num_micro_batches; ++m)
    views.push_back(batch.View(first + m * layout.micro_batch));
  return views;
}

}  // namespace

parallel::UpdateOptions UpdateOf(const optim::Optimizer& optimizer, size_t num_parameters) {
  const optim::Defaults& defaults = optimizer.defaults;
  parallel::UpdateOptions update;
  update.lr = 10 * static_cast<float>(defaults.lr);
  update.beta1 = static_cast<float>(defaults.beta1);
  update.beta2 = static_cast<float>(defaults.beta2);
  update.eps = static_cast<float>(defaults.eps);
  update.momentum = static_cast<float>(defaults.momentum);
  update.weight_decay = static_cast<float>(defaults.weight_decay);
  update.decay.assign(num_parameters, true);
  update.clip_norm = 0.1;
  return update;
}

float EpsAboveRounding(float least, const Outcome& alone, int64_t numel) {
  double squares = 0;
  for (int64_t i = 0; i < numel; ++i) {
    const double g = alone.gradients()[i];
    squares += g * g;
  }
  return std::max(least, static_cast<float>(1e-3 * std::sqrt(squares / static_cast<double>(numel))));
}

Trial OnOneProcess(const Trial& trial) {
  Trial alone = trial;
  const layout::Layout& layout = trial.layout;
  alone.layout = {.micro_batch = layout.micro_batch * layout.num_micro_batches * layout.mesh.data_degree()};
  return alone;
}

absl::Status RunTrial(const Trial& trial, const device::Device& device, comm::Communicator& communicator,
                      comm::Group& world, absl::Span<const Batch> batches, comm::FaultHook fault,
                      Outcome& outcome) {
  const int rank = communicator.rank();
  TRAINCTL_CHECK(static_cast<int>(batches.size()) == trial.num_steps);
  TRAINCTL_ASSIGN_OR_RETURN(
      const schedule::LayoutStep planned,
      schedule::BuildLayoutStep(trial.spec, model::Inventory(trial.spec), trial.layout, trial.setting));
  const schedule::Step forwards = schedule::BuildLayoutForwards(trial.layout, planned);
  const layout::Ledger& ledger = planned.ledger;
  for (const schedule::Step* step : {&planned.step, &forwards})
    TRAINCTL_RETURN_IF_ERROR(schedule::Check(*step, ledger).status());
  const schedule::Program& program = planned.ProgramOf(rank);

  communicator.SetFaultHook(nullptr);
  device.ResetPeak();
  const int64_t live_before = device.memory().live;
  parallel::ShardedState state(device, ledger, program, trial.setting.types, rank, *trial.setting.optimizer);
  TRAINCTL_ASSIGN_OR_RETURN(parallel::Groups groups,
                            parallel::Groups::Make(communicator, trial.layout.mesh, planned.step));
  state.Initialize(77);
  TRAINCTL_RETURN_IF_ERROR(
      state.MaterializeParameters(groups.Of(layout::Axis::kDpShard, schedule::kGatherStream)));
  parallel::Executor executor(trial.spec, state, groups, planned.options);

  // Whoever looks at the last trial's outcome is done with it.
  double ready = 0;
  TRAINCTL_RETURN_IF_ERROR(world.AllReduceScalars("ready", absl::MakeSpan(&ready, 1)));
  RankOutcome& own = outcome.rank(rank);
  communicator.SetFaultHook(std::move(fault));
  const std::vector<nn::TokenView> first_views = ViewsOf(trial, batches[0], rank);
  double eval[2] = {0, 0};
  const auto evaluate = [&]() -> absl::Status {
    TRAINCTL_ASSIGN_OR_RETURN(const parallel::EvalSums sums, executor.RunForward(forwards, first_views));
    eval[0] = sums.loss;
    eval[1] = static_cast<double>(sums.loss_tokens);
    return executor.SumOverRanks(layout::kEvalReduction, eval);
  };
  for (int step = 0; step < trial.num_steps; ++step) {
    const std::vector<nn::TokenView> views = ViewsOf(trial, batches[static_cast<size_t>(step)], rank);
    parallel::UpdateOptions update = trial.update;
    update.update_number = step + 1;
    TRAINCTL_ASSIGN_OR_RETURN(const parallel::StepResult result,
                              executor.RunStep(planned.step, views, update));
    own.last_loss = result.loss;
    if (step > 0) continue;
    own.measured_peak = device.memory().peak - live_before;
    own.loss = result.loss;
    own.grad_norm = result.grad_norm;
    TRAINCTL_RETURN_IF_ERROR(evaluate());
    Gather(
        state, device, ledger, state.gradient_dtype(),
        [&](int bucket) { return state.gradient_part(bucket); }, outcome.gradients());
  }
  // Refused before anything is sent: a sum that the ledger does not list is one that no mutant leaves out.
  if (trial.layout.mesh.world_size() > trial.layout.mesh.tp &&
      executor.SumOverRanks("of nobody", eval).ok()) {
    return InternalError("a sum was done that is in no list");
  }
  communicator.SetFaultHook(nullptr);
  own.eval_loss = eval[0];
  own.eval_tokens = eval[1];
  own.predicted_peak = simulate::SimulateMemory(program).peak_bytes;
  Gather(
      state, device, ledger, state.master_dtype(), [&](int bucket) { return state.parts(bucket).master; },
      outcome.parameters());
  Gather(
      state, device, ledger, state.gradient_dtype(),
      [&](int bucket) { return state.parts(bucket).states[0]; }, outcome.state());
  return world.AllReduceScalars("written", absl::MakeSpan(&ready, 1));
}

}  // namespace trainctl::verify
