#include "frameworks/layer_work.h"

#include <algorithm>

namespace trainctl::frameworks {
namespace {

// Bytes of an element that a linear layer keeps of its input for the gradient of its weights. Low precision
// is kept as it was computed with, its scales included: one byte for 32 elements of MXFP8, for 16 of NVFP4
// (NVIDIA/TransformerEngine transformer_engine/pytorch/module/linear.py saves the quantized input).
double LinearInputBytes(const Workload& w) {
  if (!w.IsFp8() || !w.framework->fp8_saves_inputs) return kHalf;
  switch (w.precision) {
    case Precision::kMxfp8:
      return 1 + 1.0 / 32;
    case Precision::kNvfp4:
      return 0.5 + 1.0 / 16;
    default:
      return 1;
  }
}

class LayerBuilder {
 public:
  LayerBuilder(const Workload& workload, int64_t layer)
      : w_(workload),
        m_(workload.model),
        attention_(AttentionOf(m_)),
        mlp_(MlpOf(m_)),
        tp_(static_cast<double>(workload.mesh.tp)),
        tokens_(workload.TokensPerRank()),
        cut_(workload.SequenceParallel() ? tp_ : 1),
        hidden_(static_cast<double>(m_.hidden)),
        linear_input_(LinearInputBytes(workload)),
        fused_(workload.FusedElementwise()),
        has_experts_(HasExperts(m_, layer)) {}

  LayerWork Build() {
    work_.items.reserve(32);  // more than most layers have
    work_.input_bytes = tokens_ / cut_ * hidden_ * kHalf;
    work_.tensor_parallel_bytes = tp_ > 1 ? tokens_ * hidden_ * kHalf : 0;
    // Norms that can be recomputed are modules of their own: before latent attention and before experts. The
    // others are part of the product behind them (NVIDIA/Megatron-LM
    // megatron/core/models/gpt/gpt_layer_specs.py: input_layernorm, pre_mlp_layernorm;
    // megatron/core/transformer/transformer_layer.py: IdentityOp).
    AddNorm(attention_.latent.has_value());
    attention_.latent.has_value() ? AddLatentAttention() : AddAttention();
    AddResidual();
    AddNorm(has_experts_);
    has_experts_ ? AddExperts() : AddMlp(static_cast<double>(mlp_.ffn), /*input_is_saved=*/true);
    AddResidual();
    return std::move(work_);
  }

 private:
  WorkItem& Add(WorkItem item) {
    work_.items.push_back(item);
    return work_.items.back();
  }

  // Reads and writes the stream; keeps its input. Its output is kept by the product that reads it. One kernel
  // by one it keeps its input in fp32 and what is scaled, and the stream itself not.
  void AddNorm(bool is_module) {
    const double bytes = tokens_ / cut_ * hidden_ * kHalf;
    Add({.kind = WorkKind::kElementwise,
         .pass = PassKind::kNorm,
         .moved_bytes = 2 * bytes,
         .saved_bytes = fused_ || w_.fused_norms ? bytes : 3 * bytes,
         .again_by = is_module ? uint32_t{kLayerNorms} : 0});
  }

  void AddResidual() {
    const double elements = tokens_ / cut_ * hidden_;
    Add({.kind = WorkKind::kElementwise,
         .pass = PassKind::kResidual,
         .moved_bytes = 3 * elements * kHalf,
         .saved_bytes = m_.dropout ? elements : 0});
  }

  WorkItem& AddMatmul(double rows, double inner, double columns, double saved_bytes, double recomputed = 0,
                      double batch = 1) {
    return Add({.kind = WorkKind::kMatmul,
                .batch = batch,
                .rows = rows,
                .inner = inner,
                .columns = columns,
                .saved_bytes = saved_bytes,
                .fp8 = true,
                .share_recomputed_by_selection = recomputed});
  }

  // Heads of keys and values are repeated where there are fewer of them than ranks.
  double KeyValueHeads() const { return std::max(1.0, static_cast<double>(attention_.kv_heads) / tp_); }
  double Heads() const { return static_cast<double>(attention_.heads) / tp_; }

  // Keys that a causal query sees on average: half of the sequence, or of a window's length all but what the
  // first queries lack. Layers with a window and without are priced as one kind, their mean.
  double MeanKeys() const {
    const double length = static_cast<double>(w_.seq_len);
    const double all = length / 2;
    if (WindowOf(m_) <= 0) return all;
    const double window = std::min(static_cast<double>(WindowOf(m_)), length);
    const double share = w_.window_share.has_value() ? *w_.window_share : WindowShare(m_);
    return share * (window - window * window / (2 * length)) + (1 - share) * all;
  }

  // Keeps its output and four bytes a head and query; its inputs are kept by who made them.
  void AddCoreAttention(double query_dim, double value_dim) {
    const double context = MeanKeys();
    const double saved = tokens_ * Heads() * value_dim * kHalf + tokens_ * Heads() * 4;
    if (w_.framework->attention == AttentionKernel::kScores) {
      // The softmax's output, and its dropped copy with the mask (arXiv 2205.05198: 5 a s^2 b with dropout).
      Add({.kind = WorkKind::kElementwise,
           .saved_bytes = tokens_ * Heads() * static_cast<double>(w_.seq_len) * (m_.dropout ? 5 : kHalf),
           .dropped_by = kCoreAttention});
    }
    // Megatron's checkpoint goes around any kernel (NVIDIA/Megatron-LM@d98e8a64
    // megatron/core/transformer/attention.py:446-500, _checkpointed_attention_forward): the statistics go,
    // and the output, unless the projection behind it keeps just that as its input.
    const bool checkpointed =
        w_.framework->selects_modules && w_.framework->attention != AttentionKernel::kScores;
    Add({.kind = WorkKind::kAttention,
         .rows = tokens_,
         .inner = context,
         .columns = Heads(),
         .head_dim = (query_dim + value_dim) / 2,
         .saved_bytes = saved,
         .kept_anyway_bytes = OwnCopyBytes() > 0 ? 0 : tokens_ * Heads() * value_dim * kHalf,
         .dropped_by = checkpointed ? uint32_t{kCoreAttention} : 0,
         .again_by = checkpointed ? uint32_t{kCoreAttention} : 0});
  }

  void AddAttention() {
    const double dim = static_cast<double>(attention_.head_dim);
    const double queries = Heads() * dim;
    const double keys = KeyValueHeads() * dim;
    // Selective recompute keeps every second product: of q, k, v and o these are q and v, of gate, up and
    // down all but up.
    AddMatmul(tokens_, hidden_, queries + 2 * keys, tokens_ / cut_ * hidden_ * linear_input_,
              /*recomputed=*/keys / (queries + 2 * keys));
    if (attention_.qk_norm != model::QkNorm::kNone) {
      Add({.kind = WorkKind::kElementwise,
           .pass = PassKind::kNorm,
           .moved_bytes = 2 * tokens_ * (queries + keys) * kHalf,
           .saved_bytes = tokens_ * (queries + keys) * kHalf});
    }
    Add({.kind = WorkKind::kElementwise,
         .pass = PassKind::kRotary,
         .moved_bytes = 2 * tokens_ * (queries + keys) * kHalf,
         .saved_bytes = tokens_ * (queries + 2 * keys) * kHalf});
    AddCoreAttention(dim, dim);
    AddMatmul(tokens_, queries, hidden_, tokens_ * queries * OwnCopyBytes(), /*recomputed=*/1);
  }

  // A linear layer in low precision keeps its own copy of what attention keeps too.
  double OwnCopyBytes() const { return linear_input_ < kHalf ? linear_input_ : 0; }

  void AddLatentAttention() {
    const model::LatentAttention& l = *attention_.latent;
    const double query_dim = static_cast<double>(l.nope_dim + l.rope_dim);
    const double value_dim = static_cast<double>(l.value_dim);
    const double query_rank = static_cast<double>(l.query_rank);
    const double kv_rank = static_cast<double>(l.key_value_rank);
    const double kv_columns = Heads() * static_cast<double>(l.nope_dim + l.value_dim);
    if (query_rank > 0) {
      AddMatmul(tokens_, hidden_, query_rank, tokens_ / cut_ * hidden_ * linear_input_).dropped_by =
          kLayerNorms;
      AddMatmul(tokens_, query_rank, Heads() * query_dim, tokens_ * query_rank * (kHalf + linear_input_))
          .again_by = kLatentUp;
    } else {
      AddMatmul(tokens_, hidden_, Heads() * query_dim, tokens_ / cut_ * hidden_ * linear_input_).dropped_by =
          kLayerNorms;
    }
    AddMatmul(tokens_, hidden_, kv_rank + static_cast<double>(l.rope_dim), 0);
    AddMatmul(tokens_, kv_rank, kv_columns, tokens_ * kv_rank * (kHalf + linear_input_)).again_by = kLatentUp;
    const double saved = tokens_ * Heads() * (2 * query_dim + value_dim) * kHalf;
    Add({.kind = WorkKind::kElementwise,
         .pass = PassKind::kRotary,
         .moved_bytes = 2 * saved,
         .saved_bytes = saved,
         .dropped_by = kLatentUp,
         .again_by = kLatentUp});
    AddCoreAttention(query_dim, value_dim);
    AddMatmul(tokens_, Heads() * value_dim, hidden_, tokens_ * Heads() * value_dim * OwnCopyBytes(),
              /*recomputed=*/1);
  }

  void AddMlp(double ffn, bool input_is_saved, uint32_t dropped_by = kPlainMlp) {
    const double columns = ffn / tp_;
    const double gates = mlp_.gated ? 2 : 1;
    WorkItem& up = AddMatmul(tokens_, hidden_, gates * columns,
                             input_is_saved ? tokens_ / cut_ * hidden_ * linear_input_ : 0,
                             /*recomputed=*/mlp_.gated ? 0.5 : 0);
    up.again_by = dropped_by;
    // Kernel by kernel the gate is kept before and after its activation.
    Add({.kind = WorkKind::kElementwise,
         .pass = mlp_.gated ? PassKind::kGatedActivation : PassKind::kActivation,
         .moved_bytes = tokens_ * columns * (gates + 1) * kHalf,
         .saved_bytes = tokens_ * columns * (gates + (mlp_.gated && !fused_ ? 1 : 0)) * kHalf,
         .dropped_by = dropped_by,
         .again_by = dropped_by});
    WorkItem& down = AddMatmul(tokens_, columns, hidden_, tokens_ * columns * linear_input_);
    down.dropped_by = dropped_by;
    down.again_by = dropped_by;
  }

  void AddCopy(double tokens) {
    Add({.kind = WorkKind::kElementwise,
         .pass = PassKind::kCopy,
         .moved_bytes = 2 * tokens * hidden_ * kHalf,
         .again_by = kWholeExperts});
  }

  // Each tensor-parallel rank routes its part of the tokens. Experts are whole on their rank, or cut in etp
  // parts whose ranks see the same tokens.
  void AddExperts() {
    const model::Experts& e = *FindExperts(m_);
    const double etp = static_cast<double>(w_.mesh.etp);
    const double own_tokens = tokens_ / tp_;
    const double routed = own_tokens * static_cast<double>(e.top_k) * etp;
    const double ffn = static_cast<double>(e.ffn);
    const double gates = mlp_.gated ? 2 : 1;
    const double ep = static_cast<double>(w_.mesh.ep);
    const double local_experts = static_cast<double>(e.num_experts) / ep;
    Add({.kind = WorkKind::kMatmul,
         .rows = own_tokens,
         .inner = hidden_,
         .columns = static_cast<double>(e.num_experts),
         .saved_bytes = own_tokens * hidden_ * kHalf,
         .dropped_by = kLayerNorms,
         .again_by = kWholeExperts});
    // Permuted to the experts' order and back on both sides of the exchange; on this side a token is read, or
    // written, once for all of its experts. Experts of one rank need no sorting.
    const double sorts = local_experts > 1 ? 4 : 0;
    Add({.kind = WorkKind::kElementwise,
         .pass = PassKind::kPermute,
         .moved_bytes = ((2 + sorts) * routed + 2 * own_tokens) * hidden_ * kHalf,
         .again_by = kWholeExperts});
    if (ep > 1) work_.expert_bytes = routed * hidden_ * kHalf;
    const size_t first = work_.items.size();
    // NVIDIA/Megatron-LM@d98e8a64 megatron/core/transformer/moe/experts.py, quantization_padding and
    // quantization_unpadding; HybridEP and DeepEP pad as they sort.
    const bool apart = w_.framework->expert_extras_apart;
    const bool pads =
        apart && w_.IsFp8() && !w_.drops_tokens && ep > 1 && w_.expert_dispatch == ExpertDispatch::kAllToAll;
    if (pads) AddCopy(routed);
    WorkItem& up = AddMatmul(routed / local_experts, hidden_, gates * ffn / etp,
                             routed * hidden_ * linear_input_, 0, local_experts);
    up.dropped_by = up.again_by = kWholeExperts;
    if (apart && mlp_.clamped) {
      // Two clamps of half the columns each, and both joined again: r w, r w.
      Add({.kind = WorkKind::kElementwise,
           .pass = PassKind::kClamp,
           .moved_bytes = routed * ffn / etp * gates * 4 * kHalf,
           .again_by = kWholeExperts | kExpertActivation});
    }
    Add({.kind = WorkKind::kElementwise,
         .pass = mlp_.gated ? PassKind::kGatedActivation : PassKind::kActivation,
         .moved_bytes = routed * ffn / etp * (gates + 1) * kHalf,
         .saved_bytes = routed * ffn / etp * gates * kHalf,
         .dropped_by = kWholeExperts,
         .again_by = kWholeExperts | kExpertActivation});
    WorkItem& down = AddMatmul(routed / local_experts, ffn / etp, hidden_, routed * ffn / etp * linear_input_,
                               0, local_experts);
    down.dropped_by = kWholeExperts | kExpertActivation;
    down.again_by = kWholeExperts;
    if (apart && HasAllLinearBiases(m_)) {
      Add({.kind = WorkKind::kElementwise,
           .pass = PassKind::kExpertBias,
           .moved_bytes = routed * hidden_ * BytesOfExpertBias(w_).forward,
           .again_by = kWholeExperts});
    }
    if (pads) AddCopy(routed);
    for (size_t i = first; i < work_.items.size(); ++i) work_.items[i].expert = true;
    if (e.shared_ffn > 0) {
      AddMlp(static_cast<double>(e.shared_ffn), /*input_is_saved=*/false, kWholeExperts | kSharedExperts);
    }
  }

  const Workload& w_;
  const model::Architecture& m_;
  const model::Attention& attention_;
  const model::Mlp& mlp_;
  const double tp_;
  const double tokens_;
  const double cut_;  // the stream between the products is cut into so many parts
  const double hidden_;
  const double linear_input_;
  const bool fused_;
  const bool has_experts_;
  LayerWork work_;
};

// torchtitan's policy (pytorch/torchtitan@6fc499f torchtitan/models/llama3/infra/parallelize.py:234-290):
// kept are the input of the layer, the output of attention and that of every second product: q, v, the gate
// and the down projection. Products in NVFP4 are none of those that it lists (pytorch/ao nvfp4_linear.py
// calls scaled_mm), and all layers but the last 15 % have them (torchtitan/components/quantization/nvfp4.md).
double SelectedBytes(const LayerWork& work, const Workload& w) {
  const double tokens = w.TokensPerRank();
  const double tp = static_cast<double>(w.mesh.tp);
  const model::Attention& a = AttentionOf(w.model);
  const double dim = static_cast<double>(a.head_dim);
  const double heads = static_cast<double>(a.heads) / tp;
  const double kv_heads = std::max(1.0, static_cast<double>(a.kv_heads) / tp);
  const double ffn = static_cast<double>(MlpOf(w.model).ffn) / tp;
  const double hidden = static_cast<double>(w.model.hidden);
  const double attention = tokens * heads * (dim * kHalf + 4);
  const double products = tokens * kHalf * (heads * dim + kv_heads * dim + ffn) +
                          tokens / (w.SequenceParallel() ? tp : 1) * hidden * kHalf;
  const double kept_products = w.precision == Precision::kNvfp4 ? 0.15 : 1;
  return work.input_bytes + (w.recompute_attention ? 0 : attention) + kept_products * products;
}

}  // namespace

LayerWork WorkOfLayer(const Workload& workload, int64_t layer) {
  return LayerBuilder(workload, layer).Build();
}

std::vector<std::string> LeftOut(const model::Architecture& model) {
  std::vector<std::string> notes;
  if (model.mtp_layers > 0) {
    notes.emplace_back("the layers that predict further tokens (num_nextn_predict_layers) are left out");
  }
  if (NormPlacesOf(model) == model::NormPlaces::kBeforeAndAfter)
    notes.emplace_back("the norms after attention and MLP are left out");
  return notes;
}

// NVIDIA/Megatron-LM@d98e8a64 megatron/core/transformer/moe/experts.py, TEGroupedMLP._apply_bias, of each
// expert bias times probability, added, all joined: w, r r w, r w; backward the split's gradients joined,
// gradient times probability and times bias with their sums: r w, and twice r w and r. Probabilities in fp32,
// as token_dispatcher.py makes them for HybridEP ("only supports float32 probs"), bring all between the
// product and the last result to fp32, and casts to and from it.
ExpertBiasBytes BytesOfExpertBias(const Workload& w) {
  if (w.expert_dispatch != ExpertDispatch::kNodeAware) return {2 + 6 + 4, 4 + 2 * 6};
  return {4 + 10 + 8 + 6, 6 + 6 + 4 + 2 * 12};
}

double SavedBytes(const LayerWork& work, const Workload& w) {
  if (w.recompute == RecomputeKind::kFull) return work.input_bytes;
  if (w.recompute == RecomputeKind::kSelective && w.framework->selects_operators)
    return SelectedBytes(work, w);
  // Selective recompute of Megatron: the scores alone, or the modules that are named.
  uint32_t again = 0;
  if (w.recompute == RecomputeKind::kSelective) {
    again = w.framework->selects_modules ? w.recompute_modules : uint32_t{kCoreAttention};
  }
  double saved = 0;
  for (const WorkItem& item : work.items) {
    saved += (item.dropped_by & again) == 0 ? item.saved_bytes : item.kept_anyway_bytes;
  }
  return saved;
}

}  // namespace trainctl::frameworks
