#include "frameworks/framework_ways.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace trainctl::frameworks {
namespace {

using schedule::PipelineKind;

const std::vector<FrameworkWays>& Ways() {
  static const auto* const ways = new std::vector<FrameworkWays>{
      {.names = {"megatron-core", "megatron-bridge"},
       .source = "NVIDIA/Megatron-LM megatron/core/pipeline_parallel/schedules.py (1F1B with and without "
                 "interleaving); --cp-comm-type p2p, all_gather, a2a; --use-distributed-optimizer",
       .schedules = {PipelineKind::k1F1B, PipelineKind::kInterleaved1F1B},
       .contexts = {ContextKind::kRing, ContextKind::kAllGather, ContextKind::kAllToAll},
       .zero_stages = {0, 1}},
      {.names = {"megatron-deepspeed"},
       .source = "DeepSpeed deepspeed/runtime/pipe/schedule.py (TrainSchedule is 1F1B); its pipeline engine "
                 "refuses ZeRO-2 and ZeRO-3",
       .context = false,
       .expert = false,
       .schedules = {PipelineKind::k1F1B},
       .zero_stages = {0, 1}},
      {.names = {"fsdp1"},
       .source = "torch.distributed.fsdp.ShardingStrategy: NO_SHARD, SHARD_GRAD_OP, FULL_SHARD",
       .tensor = false,
       .context = false,
       .expert = false,
       .zero_stages = {0, 2, 3}},
      {.names = {"torchtitan", "torchtitan-eager"},
       .source =
           "torch.distributed.pipelining.schedules; torchtitan's context_parallel_rotate_method; FSDP2's "
           "reshard_after_forward (ZeRO-3, or ZeRO-2 where it is off); pytorch/torchtitan #2577 (heads of "
           "keys "
           "and values)",
       .schedules = {PipelineKind::kGPipe, PipelineKind::k1F1B, PipelineKind::kInterleaved1F1B,
                     PipelineKind::kLoopedBreadthFirst, PipelineKind::kInterleavedZeroBubble,
                     PipelineKind::kZbv},
       .contexts = {ContextKind::kRing, ContextKind::kAllGather},
       .zero_stages = {0, 2, 3},
       .copies_kv_heads = false,
       .pads_vocab = false},
      {.names = {"torchtune"},
       .source = "pytorch/torchtune recipes: one device, or FSDP2",
       .tensor = false,
       .context = false,
       .expert = false,
       .zero_stages = {0, 3}},
      {.names = {"internevo"},
       .source = "InternLM/InternEvo: parallel = dict(zero1, tensor, pipeline(interleaved_overlap))",
       .context = false,
       .expert = false,
       .schedules = {PipelineKind::k1F1B, PipelineKind::kInterleaved1F1B},
       .zero_stages = {0, 1}},
  };
  return *ways;
}

}  // namespace

const FrameworkWays* FindWays(absl::string_view framework) {
  for (const FrameworkWays& ways : Ways()) {
    if (std::find(ways.names.begin(), ways.names.end(), framework) != ways.names.end()) return &ways;
  }
  return nullptr;
}

std::string TensorObstacle(absl::string_view framework, const model::Architecture& model, int64_t tp) {
  const FrameworkWays* ways = FindWays(framework);
  if (ways == nullptr || tp <= 1) return "";
  const auto text = [&](int64_t count, const char* what) {
    return absl::StrCat("tp ", tp, " does not divide the ", count, " ", what, ", which ", framework,
                        " requires");
  };
  const model::Attention& attention = AttentionOf(model);
  if (!ways->copies_kv_heads && !attention.latent.has_value() && attention.kv_heads % tp != 0)
    return text(attention.kv_heads, "key-value heads");
  if (!ways->pads_vocab && model.vocab % tp != 0) return text(model.vocab, "vocabulary entries");
  return "";
}

bool HasWaysOf(const Workload& w) {
  const FrameworkWays* ways = FindWays(w.framework->name);
  if (ways == nullptr) return true;
  const auto has = [](const auto& list, auto value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  };
  return (ways->tensor || w.mesh.tp == 1) && (ways->context || w.mesh.cp == 1) &&
         (ways->expert || w.mesh.ep == 1) && (w.mesh.pp == 1 || has(ways->schedules, w.Pipeline())) &&
         (w.mesh.cp == 1 || ways->contexts.empty() || has(ways->contexts, w.context)) &&
         has(ways->zero_stages, w.zero_stage);
}

}  // namespace trainctl::frameworks
