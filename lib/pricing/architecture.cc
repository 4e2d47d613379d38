#include "pricing/architecture.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::pricing {
namespace {

int64_t MlpMatrices(const Architecture& a) { return a.gated_mlp ? 3 : 2; }

int64_t AttentionMatrices(const Architecture& a) {
  if (!a.latent.has_value()) {
    return a.hidden * a.head_dim * (a.heads + 2 * a.kv_heads) + a.heads * a.head_dim * a.hidden;
  }
  const LatentAttention& l = *a.latent;
  const int64_t query_columns = a.heads * (l.nope_dim + l.rope_dim);
  const int64_t queries =
      l.query_rank > 0 ? a.hidden * l.query_rank + l.query_rank * query_columns : a.hidden * query_columns;
  return queries + a.hidden * (l.key_value_rank + l.rope_dim) +
         l.key_value_rank * a.heads * (l.nope_dim + l.value_dim) + a.heads * l.value_dim * a.hidden;
}

int64_t LayerVectors(const Architecture& a, bool plain_mlp) {
  int64_t vectors = 2 * a.hidden * (a.layer_norm ? 2 : 1);
  if (a.latent.has_value()) vectors += a.latent->query_rank + a.latent->key_value_rank;
  if (a.linear_bias || a.qkv_bias) vectors += a.head_dim * (a.heads + 2 * a.kv_heads);
  if (a.linear_bias) {
    vectors += a.hidden;
    if (plain_mlp) vectors += a.hidden + a.ffn * (MlpMatrices(a) - 1);
  }
  return vectors;
}

absl::Status CheckExperts(const Experts& e) {
  if (e.count <= 0 || e.ffn <= 0) return UsageError("the experts have no number or no ffn");
  if (e.top_k <= 0 || e.top_k > e.count) {
    return UsageError(absl::StrCat("a token visits ", e.top_k, " of ", e.count, " experts"));
  }
  return absl::OkStatus();
}

// The largest sizes are far above every decoder, and so small that no product of them here overflows.
struct Size {
  const char* name;
  int64_t value;
  int64_t least;
  int64_t most;
};

absl::Status CheckSizes(std::span<const Size> sizes) {
  for (const Size& size : sizes) {
    if (size.value < size.least || size.value > size.most) {
      return UsageError(
          absl::StrCat(size.name, " is ", size.value, "; it is between ", size.least, " and ", size.most));
    }
  }
  return absl::OkStatus();
}

constexpr int64_t kMostColumns = 1 << 20;
constexpr int64_t kMostInner = 1 << 22;
constexpr int64_t kMostRows = 1 << 26;  // of a table
constexpr double kMostParameters = 1e18;

}  // namespace

absl::Status Validate(const Architecture& a) {
  const LatentAttention latent = a.latent.value_or(LatentAttention{});
  const Experts experts = a.experts.value_or(Experts{});
  const Size sizes[] = {{"layers", a.layers, 1, 100'000},
                        {"hidden", a.hidden, 1, kMostColumns},
                        {"ffn", a.ffn, 0, kMostInner},
                        {"heads", a.heads, 1, 1 << 16},
                        {"kv_heads", a.kv_heads, 1, 1 << 16},
                        {"head_dim", a.head_dim, 1, 1 << 14},
                        {"vocab", a.vocab, 1, kMostRows},
                        {"learned positions", a.learned_positions, 0, kMostRows},
                        {"query rank", latent.query_rank, 0, kMostColumns},
                        {"key_value rank", latent.key_value_rank, 0, kMostColumns},
                        {"nope_dim", latent.nope_dim, 0, 1 << 14},
                        {"rope_dim", latent.rope_dim, 0, 1 << 14},
                        {"value_dim", latent.value_dim, 0, 1 << 14},
                        {"experts", experts.count, 0, 1 << 16},
                        {"the experts' ffn", experts.ffn, 0, kMostColumns},
                        {"the shared experts' ffn", experts.shared_ffn, 0, kMostInner}};
  TRAINCTL_RETURN_IF_ERROR(CheckSizes(sizes));
  if (a.heads % a.kv_heads != 0) {
    return UsageError(absl::StrCat("heads (", a.heads, ") is not a multiple of kv_heads (", a.kv_heads, ")"));
  }
  const bool needs_mlp = !a.experts.has_value() || a.experts->dense_layers > 0;
  if (needs_mlp && a.ffn <= 0)
    return UsageError(absl::StrCat("ffn is ", a.ffn, "; the MLP has at least one"));
  if (a.experts.has_value()) TRAINCTL_RETURN_IF_ERROR(CheckExperts(*a.experts));
  const auto of_last = static_cast<double>(ParametersOfLayer(a, a.layers - 1).total());
  const auto of_first = static_cast<double>(ParametersOfLayer(a, 0).total());
  if (std::max(of_first, of_last) * static_cast<double>(a.layers) > kMostParameters) {
    return UsageError(absl::StrCat("the model has more than ", kMostParameters, " parameters"));
  }
  return absl::OkStatus();
}

LayerParameters ParametersOfLayer(const Architecture& a, int64_t layer) {
  LayerParameters p;
  const bool moe = a.HasExperts(layer);
  p.matrices = AttentionMatrices(a);
  p.vectors = LayerVectors(a, !moe);
  if (!moe) {
    p.matrices += MlpMatrices(a) * a.hidden * a.ffn;
    return p;
  }
  p.matrices += MlpMatrices(a) * a.hidden * a.experts->shared_ffn;
  p.routed_experts = MlpMatrices(a) * a.hidden * a.experts->ffn * a.experts->count;
  p.router = a.hidden * a.experts->count;
  return p;
}

int64_t EmbeddingParameters(const Architecture& a) { return (a.vocab + a.learned_positions) * a.hidden; }

int64_t HeadParameters(const Architecture& a) {
  return a.hidden * (a.layer_norm ? 2 : 1) + (a.tied_embeddings ? 0 : a.vocab * a.hidden);
}

int64_t NumParameters(const Architecture& a) {
  int64_t total = EmbeddingParameters(a) + HeadParameters(a);
  for (int64_t layer = 0; layer < a.layers; ++layer) total += ParametersOfLayer(a, layer).total();
  return total;
}

int64_t NumActiveParameters(const Architecture& a) {
  int64_t total = EmbeddingParameters(a) + HeadParameters(a);
  for (int64_t layer = 0; layer < a.layers; ++layer) {
    const LayerParameters p = ParametersOfLayer(a, layer);
    total += p.matrices + p.vectors + p.router;
    if (p.routed_experts > 0) total += p.routed_experts / a.experts->count * a.experts->top_k;
  }
  return total;
}

Architecture FromModelSpec(const model::ModelSpec& spec) {
  Architecture a;
  a.layers = spec.layers;
  a.hidden = spec.hidden;
  a.ffn = spec.ffn;
  a.heads = spec.heads;
  a.kv_heads = spec.kv_heads;
  a.head_dim = spec.head_dim;
  a.vocab = spec.vocab;
  a.qkv_bias = spec.qkv_bias;
  a.tied_embeddings = spec.tie_embeddings;
  return a;
}

}  // namespace trainctl::pricing
