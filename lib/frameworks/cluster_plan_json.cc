// --json of a plan for a cluster.

#include "frameworks/cluster_plan_json.h"

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "frameworks/cluster_plan.h"

namespace trainctl::frameworks {
namespace {

// Whole bytes; doubles are exact far beyond any memory.
int64_t Whole(double value) { return static_cast<int64_t>(value); }

Json LayoutToJson(const Workload& w) {
  Json json = {{"summary", DescribeLayout(w)},
               {"tp", w.mesh.tp},
               {"pp", w.mesh.pp},
               {"virtual_stages", w.virtual_stages},
               {"cp", w.mesh.cp},
               {"ep", w.mesh.ep},
               {"etp", w.mesh.etp},
               {"dp_replicate", w.mesh.dp_replicate},
               {"dp_shard", w.mesh.dp_shard},
               {"zero_stage", w.zero_stage},
               {"micro_batch", w.micro_batch},
               {"accumulation", w.num_micro_batches()},
               {"precision", std::string(PrecisionName(w.precision))},
               {"recompute", std::string(RecomputeName(w.recompute))},
               {"sequence_parallel", w.SequenceParallel() && w.mesh.tp > 1}};
  json["schedule"] =
      w.mesh.pp > 1 ? Json(std::string(schedule::PipelineKindName(w.Pipeline()))) : Json(nullptr);
  json["context"] = w.mesh.cp > 1 ? Json(std::string(ContextName(w.context))) : Json(nullptr);
  if (!w.stage_layers.empty()) json["stage_layers"] = w.stage_layers;
  json["offload"] = Json::array();
  if (w.optimizer_on_host) json["offload"].push_back("optimizer");
  if (w.activations_on_host) json["offload"].push_back("activations");
  return json;
}

Json MemoryToJson(const MemoryPrice& memory) {
  Json parts = Json::object();
  for (int i = 0; i < kNumMemoryParts; ++i) {
    const auto part = static_cast<MemoryPart>(i);
    parts[std::string(MemoryPartName(part))] = Whole(memory.parts[static_cast<size_t>(i)]);
  }
  return {{"parts_bytes", parts},
          {"pipeline_rank", memory.stage},
          {"allocated_bytes", Whole(memory.allocated_bytes)},
          {"reserved_bytes", Whole(memory.reserved_bytes)},
          {"device_bytes", Whole(memory.device_bytes)},
          {"upper_bytes", Whole(memory.upper_bytes)}};
}

Json TimeToJson(const TimePrice& time) {
  Json parts = Json::object();
  for (const auto& [name, member] : TimeTerms()) parts[name] = time.*member;
  return {{"parts_seconds", parts}, {"step_seconds", time.step_seconds}};
}

}  // namespace

Json ChoiceToJson(const ClusterPlan& plan, const Choice& choice) {
  const Figures figures = FiguresOf(plan, choice);
  Json json = {{"gpus", choice.num_gpus()},
               {"layout", LayoutToJson(choice.workload)},
               {"fits", choice.fits},
               {"memory", MemoryToJson(choice.memory)},
               {"time", TimeToJson(choice.time)},
               {"tokens_per_second_per_gpu", figures.tokens_per_second_per_gpu},
               {"mfu", figures.mfu},
               {"bubble_share", figures.bubble_share},
               {"gpu_hours_per_billion_tokens", figures.gpu_hours_per_billion_tokens}};
  if (plan.goal.price_per_gpu_hour > 0)
    json["dollars_per_billion_tokens"] = figures.dollars_per_billion_tokens;
  if (plan.run_tokens > 0) {
    json["run_seconds"] = figures.run_seconds;
    if (plan.goal.price_per_gpu_hour > 0) json["run_dollars"] = figures.run_dollars;
  }
  if (plan.goal.failures.has_value()) {
    json["effective_share"] = figures.effective_share;
    json["save_every_seconds"] = figures.save_every_seconds;
  }
  return json;
}

Json PlanToJsonObject(const ClusterPlan& plan) {
  const Workload& base = plan.space.base;
  Json json = {{"schema", kClusterPlanSchema},
               {"what_if", true},
               {"name", plan.run_name},
               {"model",
                {{"name", plan.model.name},
                 {"parameters", model::NumParameters(base.model)},
                 {"active_parameters", model::NumActiveParameters(base.model)},
                 {"layers", NumLayers(base.model)},
                 {"hidden", base.model.hidden}}},
               {"seq_len", base.seq_len},
               {"batch_sequences", base.global_batch},
               {"cluster",
                {{"device", base.device->name},
                 {"node", base.node->name},
                 {"nodes", plan.machine->num_nodes},
                 {"devices_per_node", base.node->gpus},
                 {"memory_limit_bytes", Whole(plan.memory_limit_bytes)}}},
               {"framework", base.framework->name},
               {"chosen", ChoiceToJson(plan, plan.chosen)},
               {"alternatives", Json::array()},
               {"pareto", Json::array()},
               {"counts",
                {{"enumerated", plan.counts.enumerated},
                 {"bounded", plan.counts.bounded},
                 {"pruned_by_memory", plan.counts.pruned_by_memory},
                 {"pruned_by_time", plan.counts.pruned_by_time},
                 {"simulated", plan.counts.simulated},
                 {"seconds", plan.counts.seconds}}},
               {"notes", plan.notes}};
  for (const Choice& choice : plan.alternatives) json["alternatives"].push_back(ChoiceToJson(plan, choice));
  for (const Choice& choice : plan.pareto) json["pareto"].push_back(ChoiceToJson(plan, choice));
  return json;
}

}  // namespace trainctl::frameworks
