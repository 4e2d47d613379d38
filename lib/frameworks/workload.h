// One training job as it is priced: model, batch, precision, mesh, machine and framework.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "cluster/catalogue.h"
#include "frameworks/framework.h"
#include "frameworks/tuning.h"
#include "layout/mesh.h"
#include "model/architecture.h"
#include "schedule/pipeline.h"
#include "simulate/device_matmul.h"

namespace trainctl::frameworks {

using simulate::Precision;

inline constexpr double kHalf = 2;  // bytes of a parameter or an activation in half precision

enum class RecomputeKind : uint8_t { kNone, kSelective, kFull };
// How context-parallel ranks see each other's keys and values.
enum class ContextKind : uint8_t {
  kRing,       // they pass round beside the attention (arXiv 2310.01889)
  kAllGather,  // all of them are gathered first (arXiv 2407.21783, section 3.3.2)
  kAllToAll,   // heads are exchanged for tokens and back (arXiv 2309.14509)
};

// How tokens reach the ranks of their experts.
enum class ExpertDispatch : uint8_t {
  kAllToAll,   // a copy for each expert that a token visits
  kNodeAware,  // one to each node, from there one to each rank (DeepEP, HybridEP)
};

// What selective recompute does again, by the names of Megatron Core's recompute_modules
// (megatron/core/transformer/transformer_config.py); bits of a set.
enum RecomputeModule : uint32_t {
  kCoreAttention = 1 << 0,     // core_attn: scores, or the statistics and the output of a fused kernel
  kLayerNorms = 1 << 1,        // layernorm: outputs of the norms before attention and MLP
  kLatentUp = 1 << 2,          // mla_up_proj: queries, keys and values from the latent vectors
  kPlainMlp = 1 << 3,          // mlp: the whole plain MLP
  kSharedExperts = 1 << 4,     // shared_experts
  kExpertActivation = 1 << 5,  // moe_act: what the experts' activation writes
  kWholeExperts = 1 << 6,      // moe: router, exchange and experts
};

struct Workload {
  model::Architecture model;
  int64_t seq_len = 0;
  int64_t micro_batch = 1;   // sequences
  int64_t global_batch = 1;  // sequences
  Precision precision = Precision::kBf16;
  RecomputeKind recompute = RecomputeKind::kNone;
  uint32_t recompute_modules = kCoreAttention;  // with kSelective, where the framework selects modules
  layout::Mesh mesh;           // dp_shard: data-parallel ranks that share one copy of what is sharded
  int zero_stage = 0;          // 0: replicated, 1: optimizer, 2: and gradients, 3: and parameters sharded
  int64_t virtual_stages = 1;  // chunks of the model per pipeline rank
  const cluster::Device* device = nullptr;
  const cluster::Node* node = nullptr;
  const FrameworkProfile* framework = nullptr;

  std::optional<schedule::PipelineKind> pipeline;  // empty: 1F1B, interleaved with virtual stages
  ContextKind context = ContextKind::kRing;
  // With kFull: layers of each pipeline rank that are recomputed, the rest keep theirs; empty: all.
  std::optional<int64_t> recomputed_layers;
  // Layers of each of the pp * virtual_stages stages, in the order of the model; empty: the framework's way.
  std::vector<int64_t> stage_layers;

  // Share of the layers that attend within a window; empty: the model's.
  std::optional<double> window_share;

  // Where the job differs from its framework's way.
  std::optional<bool> sequence_parallel;
  bool recompute_attention = false;       // selection by operators does not know the attention kernel
  std::optional<bool> fused_elementwise;  // a compiler joins norms and activations; empty: as the framework
  double logit_bytes = 0;                 // per logit at the peak of the loss; 0: as the framework
  double optimizer_bytes = 0;             // per parameter; 0: as the framework
  double gradient_bytes = 0;              // per parameter; 0: as the framework
  bool half_moments = false;              // moments in half precision, which the update unpacks to fp32
  bool weights_in_fp8 = false;            // matrices are kept in low precision alone, and gathered so
  bool transposed_weights = false;        // of these a transposed copy is kept beside them
  bool frozen = false;  // adapters alone are trained: no gradients, no optimizer of the rest
  std::optional<bool> stops_recompute_early;          // empty: as the framework
  double exchanged_gradient_bytes = 0;                // per gradient on the wire; 0: as the framework
  bool gathers_fp8 = false;                           // matrices are brought to FP8 before they are gathered
  double logit_moved_bytes = 0, logit_row_bytes = 0;  // of the loss; 0: both as the framework
  double quantize_bytes = 0;               // an operand brought to low precision; 0: as the framework
  double quantize_weight_bytes = 0;        // a weight brought there; 0: as the framework
  bool half_weight_gradients = false;      // with low precision: gradients of weights are not of it
  bool fused_norms = false;                // each a kernel, whatever the framework's are
  std::optional<bool> embedding_is_layer;  // when layers are cut into stages; empty: as the framework
  int64_t loss_chunks = 1;                 // logits are formed so many times, for a part of the tokens each
  bool activations_on_host = false;        // kept activations wait in host memory for the backward
  int64_t offloaded_layers = 0;        // of each pipeline rank: their kept activations wait in host memory
  bool optimizer_on_host = false;      // master copy and moments live and are updated in host memory
  bool optimizer_in_backward = false;  // a gradient is applied and dropped as soon as it is there
  ExpertDispatch expert_dispatch = ExpertDispatch::kAllToAll;
  bool drops_tokens = false;  // experts get a fixed number of tokens, the rest of theirs is dropped or filled
  bool overlap_experts = false;  // exchanges of tokens run beside another micro-batch's passes
  // With low precision: the activation and the casts of experts' MLPs happen inside their products, and the
  // output matrix is in low precision too.
  bool fused_experts = false;
  bool fp8_attention = false;  // scores and values too are products of FP8

  Tuning tuning;  // of the machine; its rates are in `device` and `node` already (TunedMachine)
  std::optional<bool> launches_operators;       // by the host, one by one; empty: as the framework
  std::optional<bool> overlap_tensor_parallel;  // empty: as the framework

  double OptimizerBytes() const { return optimizer_bytes > 0 ? optimizer_bytes : framework->optimizer_bytes; }
  double GradientBytes() const {
    if (gradient_bytes > 0) return gradient_bytes;
    const bool other = precision == Precision::kBf16 && framework->bf16_gradient_bytes > 0;
    return other ? framework->bf16_gradient_bytes : framework->gradient_bytes;
  }
  double ExchangedGradientBytes() const {
    if (exchanged_gradient_bytes > 0) return exchanged_gradient_bytes;
    return framework->exchanged_gradient_bytes > 0 ? framework->exchanged_gradient_bytes
                                                   : framework->gradient_bytes;
  }
  // From stage 2 on each micro-batch's gradients are scattered as they come and their shards added up, so
  // that the exchange grows with the micro-batches; or all of them are added up whole, which is then what a
  // rank keeps, and scattered once.
  bool ScattersEachMicroBatch() const {
    return zero_stage >= 2 && !(mesh.pp > 1 && framework->whole_gradients_in_pipeline);
  }
  bool StopsRecomputeEarly() const {
    return stops_recompute_early.value_or(framework->stops_recompute_early);
  }
  // Of one micro-batch, on one rank; context parallelism cuts the sequences.
  double TokensPerRank() const {
    return static_cast<double>(micro_batch) * static_cast<double>(seq_len) / static_cast<double>(mesh.cp);
  }
  int64_t num_micro_batches() const { return global_batch / (micro_batch * mesh.data_degree()); }
  bool FusedElementwise() const { return fused_elementwise.value_or(framework->fused_activation); }
  double LogitBytes() const { return logit_bytes > 0 ? logit_bytes : framework->logit_bytes; }
  bool SequenceParallel() const { return sequence_parallel.value_or(framework->sequence_parallel); }
  schedule::PipelineKind Pipeline() const {
    if (pipeline.has_value()) return *pipeline;
    return virtual_stages > 1 ? schedule::PipelineKind::kInterleaved1F1B : schedule::PipelineKind::k1F1B;
  }
  schedule::PipelineShape PipelineShapeFor(int64_t micro_batches) const {
    return {mesh.pp, micro_batches, virtual_stages};
  }
  bool IsFp8() const {
    return precision == Precision::kFp8 || precision == Precision::kMxfp8 || precision == Precision::kNvfp4;
  }
  // The same job, and so the same price.
  bool operator==(const Workload&) const = default;
};

// UsageError naming what contradicts: a mesh that does not divide heads, layers or the batch.
absl::Status Validate(const Workload& workload);

}  // namespace trainctl::frameworks
