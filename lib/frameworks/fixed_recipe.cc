// The recipe of a what-if with everything fixed.

#include "frameworks/cluster_plan.h"
#include "recipe/fixed_fields.h"

namespace trainctl::frameworks {

std::string FixedRecipe(const recipe::LoadedRecipe& loaded, const ClusterPlan& plan, const Choice& choice) {
  const Workload& w = choice.workload;
  recipe::FixedFields fixed(loaded, w.micro_batch, PrecisionName(w.precision));
  recipe::ParallelConfig& p = fixed.recipe().parallel;
  p.tp = w.mesh.tp;
  p.pp = w.mesh.pp;
  p.cp = w.mesh.cp;
  p.ep = w.mesh.ep;
  p.etp = w.mesh.etp;
  p.dp_shard = w.mesh.dp_shard;
  p.dp_replicate = w.mesh.dp_replicate;
  p.zero_stage = w.zero_stage;
  p.virtual_stages = w.virtual_stages;
  p.recompute = std::string(RecomputeName(w.recompute));
  p.sequence_parallel = w.SequenceParallel();
  p.offload.emplace();
  if (w.optimizer_on_host) p.offload->emplace_back("optimizer");
  if (w.activations_on_host) p.offload->emplace_back("activations");
  fixed.Decided({"parallel.tp", "parallel.pp", "parallel.cp", "parallel.ep", "parallel.etp",
                 "parallel.dp_shard", "parallel.dp_replicate", "parallel.zero_stage",
                 "parallel.virtual_stages", "parallel.recompute", "parallel.sequence_parallel",
                 "parallel.offload"});
  if (w.mesh.pp > 1) {
    p.schedule = std::string(schedule::PipelineKindName(w.Pipeline()));
    fixed.Decided({"parallel.schedule"});
  }
  if (w.mesh.cp > 1) {
    p.context = std::string(ContextName(w.context));
    fixed.Decided({"parallel.context"});
  }
  if (w.recompute == RecomputeKind::kFull) {
    p.recomputed_layers = {w.recomputed_layers.value_or(NumLayers(w.model))};
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

}  // namespace trainctl::frameworks
