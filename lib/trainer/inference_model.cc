#include "trainer/inference_model.h"

#include "trainer/checkpointing.h"

namespace trainctl::trainer {

InferenceModel::InferenceModel(const InferenceDeps& deps, model::MicroBatchShape shape)
    : spec_(deps.recipe->model.spec),
      ledger_(model::Inventory(spec_), layout::Mesh{}, 0),
      options_{.micro_batch = shape.batch, .setting = {.seq_len = shape.seq_len, .threads = deps.threads}},
      forward_(schedule::BuildForwardOnly(spec_, ledger_, options_)),
      state_(device::Device::Cpu(), ledger_, forward_.programs[0], options_.setting.types, 0,
             *options_.setting.optimizer) {}

absl::Status InferenceModel::Load(const InferenceDeps& deps) {
  if (!deps.checkpoint_path.empty()) return LoadCheckpoint(deps.checkpoint_path, state_, true).status();
  if (deps.recipe->model.weights == "from") return LoadModelFolder(deps.recipe->model.from, state_);
  state_.Initialize(deps.recipe->run.seed);
  return absl::OkStatus();
}

}  // namespace trainctl::trainer
