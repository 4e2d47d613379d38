// A recipe with everything fixed, from a plan of our own trainer.

#include "planner/make_plan.h"
#include "recipe/fixed_fields.h"

namespace trainctl::planner {

recipe::Recipe Frozen(const recipe::Recipe& recipe, const plan::Plan& plan) {
  recipe::Recipe frozen = recipe;
  frozen.train.micro_batch = plan.layout.micro_batch;
  frozen.train.precision = plan.setting.types.compute == DType::kBF16 ? "bf16" : "fp32";
  recipe::ParallelConfig& p = frozen.parallel;
  p.dp_replicate = plan.layout.mesh.dp_replicate;
  p.dp_shard = plan.layout.mesh.dp_shard;
  p.zero_stage = plan.layout.zero_stage;
  p.pp = plan.layout.mesh.pp;
  p.tp = plan.layout.mesh.tp;
  if (plan.layout.mesh.pp > 1) {
    p.stage_layers = plan.layout.pipeline.stage_layers;
    if (!plan.layout.pipeline.HasOwnPasses()) {
      p.schedule = plan.layout.pipeline.order;
      p.virtual_stages = plan.layout.pipeline.virtual_stages;
    }
  }
  p.recompute = std::string(layout::RecomputeName(plan.layout.recompute));
  if (!plan.layout.recomputed_layers.empty()) p.recomputed_layers = plan.layout.recomputed_layers;
  frozen.cluster.memory_limit_bytes = plan.memory_limit_bytes;
  // Another machine's threads are its own.
  if (recipe.cluster.device == "cpu" || recipe.cluster.device == recipe::kCudaDevice) {
    frozen.cluster.threads_per_worker = plan.threads_per_worker;
  }
  return frozen;
}

std::string FixedRecipe(const recipe::LoadedRecipe& loaded, const plan::Plan& plan) {
  const recipe::Recipe frozen = Frozen(loaded.recipe, plan);
  recipe::FixedFields fixed(loaded, plan.layout.micro_batch, frozen.train.precision);
  fixed.recipe() = frozen;
  if (plan.layout.mesh.pp > 1) {
    fixed.Decided({"parallel.stage_layers"});
    if (!plan.layout.pipeline.HasOwnPasses()) fixed.Decided({"parallel.schedule", "parallel.virtual_stages"});
  }
  if (!plan.layout.recomputed_layers.empty()) fixed.Decided({"parallel.recomputed_layers"});
  fixed.Decided({"parallel.pp", "parallel.tp", "parallel.dp_replicate", "parallel.dp_shard",
                 "parallel.zero_stage", "parallel.recompute", "cluster.devices_per_node",
                 "cluster.memory_limit"});
  if (frozen.cluster.threads_per_worker.has_value()) fixed.Decided({"cluster.threads_per_worker"});
  return fixed.ToToml();
}

}  // namespace trainctl::planner
