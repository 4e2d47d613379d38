// A recipe with everything fixed, from a plan.

#include <set>

#include "planner/cluster_plan.h"
#include "planner/make_plan.h"
#include "recipe/show.h"

namespace trainctl::planner {
namespace {

// A recipe of which everything that was decided is written, beside what its author has stated.
class FixedFields {
 public:
  FixedFields(const recipe::LoadedRecipe& loaded, int64_t micro_batch, absl::string_view precision)
      : fixed_(loaded), written_(loaded.stated) {
    // Inputs that are turned into others at load.
    if (written_.erase("train.tokens") > 0) Decided({"train.steps"});
    written_.erase("train.batch_tokens");
    Decided({"recipe_version", "data.seq_len", "train.batch_sequences"});

    recipe().train.micro_batch = micro_batch;
    if (recipe().train.precision == "auto") fixed_.origin["train.precision"] = "planned";
    recipe().train.precision = std::string(precision);
    Decided({"train.micro_batch", "train.precision"});
  }

  recipe::Recipe& recipe() { return fixed_.recipe; }

  void Decided(std::initializer_list<const char*> paths) {
    for (const char* path : paths) {
      if (written_.insert(path).second) fixed_.origin[path] = "planned";
    }
  }

  std::string ToToml() const { return recipe::ToToml(fixed_, written_); }

 private:
  recipe::LoadedRecipe fixed_;
  std::set<std::string> written_;
};

}  // namespace

recipe::Recipe Frozen(const recipe::Recipe& recipe, const plan::Plan& plan) {
  recipe::Recipe frozen = recipe;
  frozen.train.micro_batch = plan.layout.micro_batch;
  frozen.train.precision = plan.setting.compute_dtype == DType::kBF16 ? "bf16" : "fp32";
  recipe::ParallelConfig& p = frozen.parallel;
  p.dp_replicate = plan.layout.mesh.dp_replicate;
  p.dp_shard = plan.layout.mesh.dp_shard;
  p.zero_stage = plan.layout.zero_stage;
  p.recompute = std::string(layout::RecomputeName(plan.layout.recompute));
  frozen.cluster.memory_limit_bytes = plan.memory_limit_bytes;
  // Another machine's threads are its own.
  if (recipe.cluster.device == "cpu" || recipe.cluster.device == recipe::kCudaDevice) {
    frozen.cluster.threads_per_worker = plan.threads_per_worker;
  }
  return frozen;
}

std::string FixedRecipe(const recipe::LoadedRecipe& loaded, const plan::Plan& plan) {
  const recipe::Recipe frozen = Frozen(loaded.recipe, plan);
  FixedFields fixed(loaded, plan.layout.micro_batch, frozen.train.precision);
  fixed.recipe() = frozen;
  fixed.Decided({"parallel.dp_replicate", "parallel.dp_shard", "parallel.zero_stage", "parallel.recompute",
                 "cluster.devices_per_node", "cluster.memory_limit"});
  if (frozen.cluster.threads_per_worker.has_value()) fixed.Decided({"cluster.threads_per_worker"});
  return fixed.ToToml();
}

std::string FixedRecipe(const recipe::LoadedRecipe& loaded, const ClusterPlan& plan, const Choice& choice) {
  const pricing::Workload& w = choice.workload;
  const pricing::Degrees& d = w.degrees;
  FixedFields fixed(loaded, w.micro_batch, PrecisionName(w.precision));
  recipe::ParallelConfig& p = fixed.recipe().parallel;
  p.tp = d.tp;
  p.pp = d.pp;
  p.cp = d.cp;
  p.ep = d.ep;
  p.etp = d.etp;
  p.dp_shard = d.shard_group;
  p.dp_replicate = d.dp / d.shard_group;
  p.zero_stage = d.zero_stage;
  p.virtual_stages = d.virtual_stages;
  p.recompute = std::string(RecomputeName(w.recompute));
  p.sequence_parallel = w.SequenceParallel();
  p.offload.emplace();
  if (w.optimizer_on_host) p.offload->emplace_back("optimizer");
  if (w.activations_on_host) p.offload->emplace_back("activations");
  fixed.Decided({"parallel.tp", "parallel.pp", "parallel.cp", "parallel.ep", "parallel.etp",
                 "parallel.dp_shard", "parallel.dp_replicate", "parallel.zero_stage",
                 "parallel.virtual_stages", "parallel.recompute", "parallel.sequence_parallel",
                 "parallel.offload"});
  if (d.pp > 1) {
    p.schedule = std::string(schedule::PipelineKindName(w.Pipeline()));
    fixed.Decided({"parallel.schedule"});
  }
  if (d.cp > 1) {
    p.context = std::string(ContextName(w.context));
    fixed.Decided({"parallel.context"});
  }
  if (w.recompute == pricing::RecomputeKind::kFull) {
    p.recomputed_layers = w.recomputed_layers.value_or(w.model.layers);
    fixed.Decided({"parallel.recomputed_layers"});
  }
  if (!w.stage_layers.empty()) {
    p.stage_layers = w.stage_layers;
    fixed.Decided({"parallel.stage_layers"});
  }

  recipe::ClusterConfig& c = fixed.recipe().cluster;
  c.node = plan.machine->node->name;
  const int64_t per_node = plan.machine->node->gpus;
  // A goal of few devices may leave some of the cluster, or of a single node, unused.
  c.nodes = (choice.num_gpus() + per_node - 1) / per_node;
  c.devices_per_node = std::min(per_node, choice.num_gpus());
  fixed.Decided({"cluster.node", "cluster.nodes", "cluster.devices_per_node"});
  return fixed.ToToml();
}

}  // namespace trainctl::planner
