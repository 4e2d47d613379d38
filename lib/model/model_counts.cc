// Parameters and FLOPs in closed form.

#include "model/model_spec.h"

namespace trainctl::model {
namespace {

int64_t MlpMatrices(const ModelSpec& spec) { return spec.gated_mlp ? 3 : 2; }

int64_t AttentionMatrices(const ModelSpec& spec) {
  if (!spec.latent.has_value()) {
    return spec.hidden * spec.head_dim * (spec.heads + 2 * spec.kv_heads) +
           spec.heads * spec.head_dim * spec.hidden;
  }
  const LatentAttention& l = *spec.latent;
  const int64_t query_columns = spec.heads * (l.nope_dim + l.rope_dim);
  const int64_t queries = l.query_rank > 0 ? spec.hidden * l.query_rank + l.query_rank * query_columns
                                           : spec.hidden * query_columns;
  return queries + spec.hidden * (l.key_value_rank + l.rope_dim) +
         l.key_value_rank * spec.heads * (l.nope_dim + l.value_dim) + spec.heads * l.value_dim * spec.hidden;
}

// A scale, and a shift where it has one.
int64_t NormVectors(const ModelSpec& spec) { return spec.layer_norm ? 2 : 1; }

int64_t NormParameters(const ModelSpec& spec) {
  const int64_t norms = (spec.shared_norm ? 1 : 2) + (spec.post_norms ? 2 : 0);
  int64_t elements = norms * spec.hidden;
  if (spec.latent.has_value()) elements += spec.latent->query_rank + spec.latent->key_value_rank;
  if (spec.qk_norm) elements += spec.head_dim * (spec.whole_qk_norm ? spec.heads + spec.kv_heads : 2);
  return elements * NormVectors(spec);
}

int64_t LayerVectors(const ModelSpec& spec, bool has_experts) {
  int64_t vectors = NormParameters(spec);
  if (spec.qkv_bias) vectors += spec.head_dim * (spec.heads + 2 * spec.kv_heads);
  if (spec.attention_out_bias) vectors += spec.hidden;
  if (spec.attention_sinks) vectors += spec.heads;
  if (spec.mlp_bias && !has_experts) vectors += spec.hidden + spec.ffn * (MlpMatrices(spec) - 1);
  if (spec.gated_shared_experts && has_experts) vectors += spec.hidden;
  return vectors;
}

// Of one routed expert.
int64_t ExpertMatrices(const ModelSpec& spec) { return MlpMatrices(spec) * spec.hidden * spec.experts->ffn; }

int64_t ExpertBiases(const ModelSpec& spec) {
  return spec.expert_bias ? spec.hidden + spec.experts->ffn * (MlpMatrices(spec) - 1) : 0;
}

// Of the routed experts of one layer.
int64_t ActiveExpertParameters(const ModelSpec& spec, const LayerParameters& layer) {
  return layer.routed_experts > 0 ? layer.routed_experts / spec.experts->num_experts * spec.experts->top_k
                                  : 0;
}

}  // namespace

LayerParameters ParametersOfLayer(const ModelSpec& spec, int64_t layer) {
  LayerParameters p;
  const bool has_experts = spec.HasExperts(layer);
  p.matrices = AttentionMatrices(spec);
  p.vectors = LayerVectors(spec, has_experts);
  if (!has_experts) {
    p.matrices += MlpMatrices(spec) * spec.hidden * spec.ffn;
    return p;
  }
  p.matrices += MlpMatrices(spec) * spec.hidden * spec.experts->shared_ffn;
  p.routed_experts = (ExpertMatrices(spec) + ExpertBiases(spec)) * spec.experts->num_experts;
  p.router = (spec.hidden + (spec.expert_bias ? 1 : 0)) * spec.experts->num_experts;
  return p;
}

int64_t EmbeddingParameters(const ModelSpec& spec) {
  const int64_t norm = spec.embedding_norm ? NormVectors(spec) * spec.hidden : 0;
  return (spec.vocab + spec.learned_positions) * spec.hidden + norm;
}

int64_t HeadParameters(const ModelSpec& spec) {
  const int64_t matrix = spec.tie_embeddings ? 0 : spec.vocab * spec.hidden;
  return NormVectors(spec) * spec.hidden + matrix + (spec.head_bias ? spec.vocab : 0);
}

int64_t NumParameters(const ModelSpec& spec) {
  int64_t total = EmbeddingParameters(spec) + HeadParameters(spec);
  for (int64_t layer = 0; layer < spec.layers; ++layer) total += ParametersOfLayer(spec, layer).total();
  return total;
}

int64_t NumActiveParameters(const ModelSpec& spec) {
  int64_t total = EmbeddingParameters(spec) + HeadParameters(spec);
  for (int64_t layer = 0; layer < spec.layers; ++layer) {
    const LayerParameters p = ParametersOfLayer(spec, layer);
    total += p.matrices + p.vectors + p.router + ActiveExpertParameters(spec, p);
  }
  return total;
}

double FlopsPerToken(const ModelSpec& spec, int64_t seq_len) {
  int64_t weights = spec.hidden * spec.vocab;  // of the head, tied or not
  for (int64_t layer = 0; layer < spec.layers; ++layer) {
    const LayerParameters p = ParametersOfLayer(spec, layer);
    weights += p.matrices;
    if (spec.HasExperts(layer)) {
      weights += spec.hidden * spec.experts->num_experts + ExpertMatrices(spec) * spec.experts->top_k;
    }
  }
  int64_t scored = 2 * spec.head_dim;  // of a key and a value
  if (spec.latent.has_value())
    scored = spec.latent->nope_dim + spec.latent->rope_dim + spec.latent->value_dim;
  // Forward 2 and backward 4 per weight. Scores and their product with the values: 2 s (key + value) forward,
  // three times that with the backward, halved by the causal mask.
  const double scores = static_cast<double>(spec.layers) * static_cast<double>(spec.heads * scored) *
                        static_cast<double>(seq_len);
  return 6 * static_cast<double>(weights) + 3 * scores;
}

}  // namespace trainctl::model
