// Held-out loss of a checkpoint, in one process.

#include "base/json.h"
#include "data/batch_source.h"
#include "parallel/executor.h"
#include "trainer/inference_model.h"

namespace trainctl::trainer {
namespace {

absl::StatusOr<std::string> Eval(const InferenceDeps& deps) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<data::EvalSet> sets, data::OpenEvalSets(*deps.recipe));
  if (sets.empty()) return UsageError("the recipe has no evaluation set; give data.eval or a holdout");
  InferenceModel model(deps, {1, deps.recipe->data.seq_len});
  TRAINCTL_RETURN_IF_ERROR(model.Load(deps));
  TRAINCTL_ASSIGN_OR_RETURN(
      const auto communicator,
      comm::Communicator::Create(device::Device::Cpu(), nullptr, 0, 1, absl::Minutes(1)));
  TRAINCTL_ASSIGN_OR_RETURN(parallel::Groups groups,
                            parallel::Groups::Make(*communicator, layout::Mesh{}, model.forward()));
  parallel::Executor executor(model.spec(), model.state(), groups, model.options());
  Json report = {
      {"schema", "trainctl.eval.v1"}, {"checkpoint", deps.checkpoint_path}, {"sets", Json::array()}};
  for (const data::EvalSet& set : sets) {
    parallel::EvalSums sums;
    for (int64_t i = 0; i < set.num_batches; ++i) {
      for (int64_t s = 0; s < deps.recipe->train.batch_sequences; ++s) {
        TRAINCTL_ASSIGN_OR_RETURN(const data::Batch batch, set.source->Get(i, {s, 1}));
        const nn::TokenView view{batch.tokens.data(), batch.targets.data(), batch.positions.data(),
                                 batch.document.data(), batch.loss_mask.data()};
        TRAINCTL_ASSIGN_OR_RETURN(const parallel::EvalSums part,
                                  executor.RunForward(model.forward(), {&view, 1}));
        sums.loss += part.loss;
        sums.loss_tokens += part.loss_tokens;
      }
    }
    report["sets"].push_back(
        {{"name", set.name},
         {"loss", sums.loss_tokens > 0 ? sums.loss / static_cast<double>(sums.loss_tokens) : 0.0},
         {"loss_tokens", sums.loss_tokens}});
  }
  return report.dump() + "\n";
}

}  // namespace

absl::StatusOr<std::string> RunEval(const InferenceDeps& deps) {
  return Guarded(deps, [&] { return Eval(deps); });
}

}  // namespace trainctl::trainer
