// A recipe with everything fixed, from a plan.

#include <set>

#include "planner/cluster_plan.h"
#include "recipe/show.h"

namespace trainctl::planner {

std::string FixedRecipe(const recipe::LoadedRecipe& loaded, const ClusterPlan& plan, const Choice& choice) {
  recipe::LoadedRecipe fixed = loaded;
  recipe::Recipe& r = fixed.recipe;
  const pricing::Workload& w = choice.workload;
  const pricing::Degrees& d = w.degrees;
  std::set<std::string> written = loaded.stated;
  const auto decided = [&](const char* path) {
    if (written.insert(path).second) fixed.origin[path] = "planned";
  };
  // Inputs that are turned into others at load.
  if (written.erase("train.tokens") > 0) decided("train.steps");
  written.erase("train.batch_tokens");
  decided("recipe_version");
  decided("data.seq_len");
  decided("train.batch_sequences");

  r.train.micro_batch = w.micro_batch;
  decided("train.micro_batch");
  if (r.train.precision == "auto") fixed.origin["train.precision"] = "planned";
  r.train.precision = std::string(PrecisionName(w.precision));
  decided("train.precision");

  recipe::ParallelConfig& p = r.parallel;
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
  for (const char* path :
       {"parallel.tp", "parallel.pp", "parallel.cp", "parallel.ep", "parallel.etp", "parallel.dp_shard",
        "parallel.dp_replicate", "parallel.zero_stage", "parallel.virtual_stages", "parallel.recompute",
        "parallel.sequence_parallel", "parallel.offload"}) {
    decided(path);
  }
  if (d.pp > 1) {
    p.schedule = std::string(schedule::PipelineKindName(w.Pipeline()));
    decided("parallel.schedule");
  }
  if (d.cp > 1) {
    p.context = std::string(ContextName(w.context));
    decided("parallel.context");
  }
  if (w.recompute == pricing::RecomputeKind::kFull) {
    p.recomputed_layers = w.recomputed_layers.value_or(w.model.layers);
    decided("parallel.recomputed_layers");
  }
  if (!w.stage_layers.empty()) {
    p.stage_layers = w.stage_layers;
    decided("parallel.stage_layers");
  }

  recipe::ClusterConfig& c = r.cluster;
  c.node = plan.machine->node->name;
  const int64_t per_node = plan.machine->node->gpus;
  // A goal of few devices may leave some of the cluster, or of a single node, unused.
  c.nodes = (choice.num_gpus() + per_node - 1) / per_node;
  c.devices_per_node = std::min(per_node, choice.num_gpus());
  for (const char* path : {"cluster.node", "cluster.nodes", "cluster.devices_per_node"}) decided(path);
  return recipe::ToToml(fixed, written);
}

}  // namespace trainctl::planner
