#include "pricing/layer_work.h"

#include <algorithm>

namespace trainctl::pricing {
namespace {

constexpr double kHalf = 2;  // bytes of an activation

class LayerBuilder {
 public:
  LayerBuilder(const Workload& workload, int64_t layer)
      : w_(workload),
        m_(workload.model),
        tp_(static_cast<double>(workload.degrees.tp)),
        tokens_(workload.TokensPerRank()),
        cut_(workload.SequenceParallel() ? tp_ : 1),
        hidden_(static_cast<double>(m_.hidden)),
        linear_input_(workload.IsFp8() && workload.framework->fp8_saves_inputs ? 1 : kHalf),
        has_experts_(m_.HasExperts(layer)) {}

  LayerWork Build() {
    work_.input_bytes = tokens_ / cut_ * hidden_ * kHalf;
    work_.tensor_parallel_bytes = tp_ > 1 ? tokens_ * hidden_ * kHalf : 0;
    AddNorm();
    m_.latent.has_value() ? AddLatentAttention() : AddAttention();
    AddResidual();
    AddNorm();
    has_experts_ ? AddExperts() : AddMlp(static_cast<double>(m_.ffn), /*input_is_saved=*/true);
    AddResidual();
    return std::move(work_);
  }

 private:
  WorkItem& Add(WorkItem item) {
    work_.items.push_back(item);
    return work_.items.back();
  }

  // Reads and writes the stream; keeps its input. Its output is kept by the product that reads it.
  void AddNorm() {
    const double bytes = tokens_ / cut_ * hidden_ * kHalf;
    Add({.kind = WorkKind::kElementwise,
         .pass = PassKind::kNorm,
         .moved_bytes = 2 * bytes,
         .saved_bytes = bytes});
  }

  void AddResidual() {
    const double elements = tokens_ / cut_ * hidden_;
    Add({.kind = WorkKind::kElementwise,
         .pass = PassKind::kResidual,
         .moved_bytes = 3 * elements * kHalf,
         .saved_bytes = m_.dropout ? elements : 0});
  }

  void AddMatmul(double rows, double inner, double columns, double saved_bytes, double recomputed = 0,
                 double batch = 1) {
    Add({.kind = WorkKind::kMatmul,
         .batch = batch,
         .rows = rows,
         .inner = inner,
         .columns = columns,
         .saved_bytes = saved_bytes,
         .fp8 = true,
         .share_recomputed_by_selection = recomputed});
  }

  // Heads of keys and values are repeated where there are fewer of them than ranks.
  double KeyValueHeads() const { return std::max(1.0, static_cast<double>(m_.kv_heads) / tp_); }
  double Heads() const { return static_cast<double>(m_.heads) / tp_; }

  void AddCoreAttention(double query_dim, double value_dim, double saved_inputs) {
    const double context = static_cast<double>(w_.seq_len) / 2;  // a causal query sees half of it on average
    double saved = saved_inputs + tokens_ * Heads() * value_dim * kHalf + tokens_ * Heads() * 4;
    if (w_.framework->attention == AttentionKernel::kScores) {
      // The softmax's output, and its dropped copy with the mask (arXiv 2205.05198: 5 a s^2 b with dropout).
      saved += tokens_ * Heads() * static_cast<double>(w_.seq_len) * (m_.dropout ? 5 : kHalf);
    }
    Add({.kind = WorkKind::kAttention,
         .rows = tokens_,
         .inner = context,
         .columns = Heads(),
         .head_dim = (query_dim + value_dim) / 2,
         .saved_bytes = saved});
  }

  void AddAttention() {
    const double dim = static_cast<double>(m_.head_dim);
    const double queries = Heads() * dim;
    const double keys = KeyValueHeads() * dim;
    // Selective recompute keeps every second product: of q, k, v and o these are q and v, of gate, up and
    // down all but up.
    AddMatmul(tokens_, hidden_, queries + 2 * keys, tokens_ / cut_ * hidden_ * linear_input_,
              /*recomputed=*/keys / (queries + 2 * keys));
    Add({.kind = WorkKind::kElementwise,
         .pass = PassKind::kRotary,
         .moved_bytes = 2 * tokens_ * (queries + keys) * kHalf});
    AddCoreAttention(dim, dim, tokens_ * (queries + 2 * keys) * kHalf);
    AddMatmul(tokens_, queries, hidden_, 0, /*recomputed=*/1);
  }

  void AddLatentAttention() {
    const LatentAttention& l = *m_.latent;
    const double query_dim = static_cast<double>(l.nope_dim + l.rope_dim);
    const double value_dim = static_cast<double>(l.value_dim);
    const double query_rank = static_cast<double>(l.query_rank);
    const double kv_rank = static_cast<double>(l.key_value_rank);
    const double kv_columns = Heads() * static_cast<double>(l.nope_dim + l.value_dim);
    if (query_rank > 0) {
      AddMatmul(tokens_, hidden_, query_rank, tokens_ / cut_ * hidden_ * linear_input_);
      AddMatmul(tokens_, query_rank, Heads() * query_dim, tokens_ * query_rank * (kHalf + linear_input_));
    } else {
      AddMatmul(tokens_, hidden_, Heads() * query_dim, tokens_ / cut_ * hidden_ * linear_input_);
    }
    AddMatmul(tokens_, hidden_, kv_rank + static_cast<double>(l.rope_dim), 0);
    AddMatmul(tokens_, kv_rank, kv_columns, tokens_ * kv_rank * (kHalf + linear_input_));
    const double saved = tokens_ * Heads() * (2 * query_dim + value_dim) * kHalf;
    Add({.kind = WorkKind::kElementwise, .pass = PassKind::kRotary, .moved_bytes = 2 * saved});
    AddCoreAttention(query_dim, value_dim, saved);
    AddMatmul(tokens_, Heads() * value_dim, hidden_, 0, /*recomputed=*/1);
  }

  void AddMlp(double ffn, bool input_is_saved) {
    const double columns = ffn / tp_;
    const double gates = m_.gated_mlp ? 2 : 1;
    AddMatmul(tokens_, hidden_, gates * columns,
              input_is_saved ? tokens_ / cut_ * hidden_ * linear_input_ : 0,
              /*recomputed=*/m_.gated_mlp ? 0.5 : 0);
    Add({.kind = WorkKind::kElementwise,
         .pass = m_.gated_mlp ? PassKind::kGatedActivation : PassKind::kActivation,
         .moved_bytes = tokens_ * columns * (gates + 1) * kHalf,
         .saved_bytes = tokens_ * columns * gates * kHalf});
    AddMatmul(tokens_, columns, hidden_, tokens_ * columns * linear_input_);
  }

  // Experts are whole on their rank; with tensor parallelism each rank routes its part of the tokens.
  void AddExperts() {
    const Experts& e = *m_.experts;
    const double own_tokens = tokens_ / tp_;
    const double routed = own_tokens * static_cast<double>(e.top_k);
    const double ffn = static_cast<double>(e.ffn);
    const double gates = m_.gated_mlp ? 2 : 1;
    const double ep = static_cast<double>(w_.degrees.ep);
    const double local_experts = static_cast<double>(e.count) / ep;
    Add({.kind = WorkKind::kMatmul,
         .rows = own_tokens,
         .inner = hidden_,
         .columns = static_cast<double>(e.count),
         .saved_bytes = own_tokens * hidden_ * kHalf});
    // Permuted to the experts' order and back on both sides of the exchange; on this side a token is read, or
    // written, once for all of its experts. Experts of one rank need no sorting.
    const double sorts = local_experts > 1 ? 4 : 0;
    Add({.kind = WorkKind::kElementwise,
         .pass = PassKind::kPermute,
         .moved_bytes = ((2 + sorts) * routed + 2 * own_tokens) * hidden_ * kHalf});
    if (ep > 1) work_.expert_bytes = routed * hidden_ * kHalf;
    const size_t first = work_.items.size();
    AddMatmul(routed / local_experts, hidden_, gates * ffn, routed * hidden_ * linear_input_, 0,
              local_experts);
    Add({.kind = WorkKind::kElementwise,
         .pass = m_.gated_mlp ? PassKind::kGatedActivation : PassKind::kActivation,
         .moved_bytes = routed * ffn * (gates + 1) * kHalf,
         .saved_bytes = routed * ffn * gates * kHalf});
    AddMatmul(routed / local_experts, ffn, hidden_, routed * ffn * linear_input_, 0, local_experts);
    for (size_t i = first; i < work_.items.size(); ++i) work_.items[i].expert = true;
    if (e.shared_ffn > 0) AddMlp(static_cast<double>(e.shared_ffn), /*input_is_saved=*/false);
  }

  const Workload& w_;
  const Architecture& m_;
  const double tp_;
  const double tokens_;
  const double cut_;  // the stream between the products is cut into so many parts
  const double hidden_;
  const double linear_input_;
  const bool has_experts_;
  LayerWork work_;
};

}  // namespace

LayerWork WorkOfLayer(const Workload& workload, int64_t layer) {
  return LayerBuilder(workload, layer).Build();
}

double SavedBytes(const LayerWork& work, const Workload& w) {
  if (w.recompute == RecomputeKind::kFull) return work.input_bytes;
  double saved = 0;
  for (const WorkItem& item : work.items) saved += item.saved_bytes;
  if (w.recompute == RecomputeKind::kNone) return saved;
  if (!w.framework->selects_operators) {
    // Selective recompute of Megatron-LM: the scores alone, which flash attention never keeps.
    if (w.framework->attention != AttentionKernel::kScores) return saved;
    const double tokens = w.TokensPerRank();
    return saved - tokens * static_cast<double>(w.model.heads) / static_cast<double>(w.degrees.tp) *
                       static_cast<double>(w.seq_len) * (w.model.dropout ? 5 : kHalf);
  }
  // torchtitan's policy (torchtitan/distributed/activation_checkpoint.py): the output of attention and of
  // every second product, q, v, the gate and the down projection, and the input of the layer.
  const double tokens = w.TokensPerRank();
  const double tp = static_cast<double>(w.degrees.tp);
  const double dim = static_cast<double>(w.model.head_dim);
  const double heads = static_cast<double>(w.model.heads) / tp;
  const double kv_heads = std::max(1.0, static_cast<double>(w.model.kv_heads) / tp);
  const double ffn = static_cast<double>(w.model.ffn) / tp;
  const double hidden = static_cast<double>(w.model.hidden);
  return work.input_bytes + tokens * kHalf * (2 * heads * dim + kv_heads * dim + ffn) +
         tokens / (w.SequenceParallel() ? tp : 1) * hidden * kHalf;
}

}  // namespace trainctl::pricing
