// A decoder as the planner sees it: sizes alone, of more families than the trainer runs. What a
// `config.json` or a published table says of a model fits in here. Pure; thread safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "model/model_spec.h"

namespace trainctl::pricing {

// Routed experts in place of the MLP.
struct Experts {
  int64_t count = 0;
  int64_t top_k = 0;         // experts that each token visits
  int64_t ffn = 0;           // of one expert
  int64_t shared_ffn = 0;    // of the experts that every token visits, together; 0 = none
  int64_t dense_layers = 0;  // leading layers that keep a plain MLP of Architecture::ffn
  bool operator==(const Experts&) const = default;
};

// Multi-head latent attention: queries, keys and values pass through narrow products
// (DeepSeek-V2, arXiv 2405.04434, section 2.1). Sizes in elements, the last three per head.
struct LatentAttention {
  int64_t query_rank = 0;  // 0: queries have a product of their own, not a narrow one
  int64_t key_value_rank = 0;
  int64_t nope_dim = 0;
  int64_t rope_dim = 0;
  int64_t value_dim = 0;
  bool operator==(const LatentAttention&) const = default;
};

struct Architecture {
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t ffn = 0;  // of a plain MLP
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab = 0;
  bool gated_mlp = true;     // three matrices (SwiGLU), or two (GELU)
  bool linear_bias = false;  // of every linear layer but the head
  bool qkv_bias = false;     // of the queries, keys and values alone
  bool layer_norm = false;   // LayerNorm with a bias, or RMSNorm
  bool tied_embeddings = false;
  bool dropout = false;              // two masks of a byte an element and layer are kept
  int64_t learned_positions = 0;     // rows of a table; 0: rotary, ALiBi or none
  bool stretched_positions = false;  // rotary positions beyond those of the pre-training (YaRN)
  bool query_key_norm = false;       // queries and keys are normalized, head by head
  bool clamped_gate = false;         // gate and product of a gated MLP are clamped before they meet
  // Of a share of the layers: earlier tokens that a query sees, itself included; 0: all.
  int64_t window = 0;
  double window_share = 1;
  std::optional<Experts> experts = std::nullopt;
  std::optional<LatentAttention> latent = std::nullopt;
  bool operator==(const Architecture&) const = default;

  bool HasExperts(int64_t layer) const { return experts.has_value() && layer >= experts->dense_layers; }
};

// UsageError naming the field: sizes that are not positive or that no decoder has, heads that kv_heads does
// not divide.
absl::Status Validate(const Architecture& architecture);

// Elements. Those of the experts are apart, because other ranks share them.
struct LayerParameters {
  int64_t matrices = 0;        // cut by tensor parallelism
  int64_t vectors = 0;         // norms and biases: on every rank (a cut bias is a matter of bytes)
  int64_t routed_experts = 0;  // cut by expert parallelism
  int64_t router = 0;
  int64_t total() const { return matrices + vectors + routed_experts + router; }
};
LayerParameters ParametersOfLayer(const Architecture& architecture, int64_t layer);
int64_t EmbeddingParameters(const Architecture& architecture);  // with learned positions
int64_t HeadParameters(const Architecture& architecture);       // final norm, output matrix unless tied
int64_t NumParameters(const Architecture& architecture);
// Those that one token meets: of the routed experts the top_k.
int64_t NumActiveParameters(const Architecture& architecture);

Architecture FromModelSpec(const model::ModelSpec& spec);

}  // namespace trainctl::pricing
