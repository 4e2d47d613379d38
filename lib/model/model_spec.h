// ModelSpec describes a decoder-only transformer as data, for the trainer, the planner and Hugging Face
// folders alike. It holds more than this version trains: WhyNotTrainable says what stands in the way. Also
// parameter counts, FLOPs and, of models that can be trained, the exact parameter inventory. Allocates no
// tensors. Pure; thread safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(model::ModelSpec spec, model::Preset("llama3.1-8b"));
//   spec.layers = 8;
//   TRAINCTL_RETURN_IF_ERROR(model::CheckTrainable(spec));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace trainctl::model {

// RoPE frequency scaling of Llama 3.1 (transformers `rope_type = "llama3"`).
struct RopeScaling {
  double factor = 8.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position = 8192;
  bool operator==(const RopeScaling&) const = default;
};

// Routed experts in place of the MLP (Switch Transformers, arXiv 2101.03961).
struct Experts {
  int64_t num_experts = 0;
  int64_t top_k = 0;         // experts that each token visits
  int64_t ffn = 0;           // inner width of one expert
  int64_t shared_ffn = 0;    // inner width of the experts that every token visits, together; 0 = none
  int64_t dense_layers = 0;  // leading layers that keep an MLP of ModelSpec::ffn
  bool operator==(const Experts&) const = default;
};

// Multi-head latent attention: queries, keys and values pass through narrow products (DeepSeek-V2, arXiv
// 2405.04434, section 2.1). Widths in elements, the last three per head.
struct LatentAttention {
  int64_t query_rank = 0;  // 0 = queries have one full product
  int64_t key_value_rank = 0;
  int64_t nope_dim = 0;  // of queries and keys, without positions
  int64_t rope_dim = 0;  // of queries and keys, with rotary positions
  int64_t value_dim = 0;
  bool operator==(const LatentAttention&) const = default;
};

struct ModelSpec {
  std::string family = "llama";  // "llama" covers Qwen2; of other models the model_type of transformers

  // Sizes in elements.
  int64_t layers = 0;
  int64_t hidden = 0;    // width of the residual stream
  int64_t ffn = 0;       // inner width of the MLP; 0 where every layer has experts
  int64_t heads = 0;     // query heads
  int64_t kv_heads = 0;  // key and value heads, a divisor of heads (grouped-query, arXiv 2305.13245)
  int64_t head_dim = 0;  // of one head; of latent attention its value_dim
  int64_t vocab = 0;
  std::optional<Experts> experts = std::nullopt;
  std::optional<LatentAttention> latent = std::nullopt;  // instead of heads of keys and values
  // Layers that predict further tokens, beyond `layers` (DeepSeek-V3, arXiv 2412.19437, section 2.2).
  int64_t mtp_layers = 0;

  // Products.
  bool gated_mlp = true;  // gate, up and down (SwiGLU, arXiv 2002.05202), or up and down alone
  bool qkv_bias = false;
  bool attention_out_bias = false;
  bool mlp_bias = false;
  bool tie_embeddings = false;  // the head's matrix is the embedding
  bool clamped_gate = false;    // gate and up are clamped before they meet (gpt-oss, arXiv 2508.10925)
  bool expert_bias = false;     // also of the router
  bool head_bias = false;
  bool gated_shared_experts =
      false;  // a column decides how much of them is added (Qwen2-MoE, arXiv 2407.10671)

  // Norms.
  bool layer_norm = false;      // LayerNorm with a bias, or RMSNorm (arXiv 1910.07467)
  bool qk_norm = false;         // queries and keys are normalized, head by head (arXiv 2302.05442)
  bool whole_qk_norm = false;   // not head by head, but all heads together (OLMo 2, arXiv 2501.00656)
  bool shared_norm = false;     // attention and MLP stand side by side behind one norm (GPT-J)
  bool embedding_norm = false;  // also after the embedding (BLOOM, arXiv 2211.05100)
  bool post_norms = false;      // also after attention and after the MLP (Gemma 2, arXiv 2408.00118)
  double norm_eps = 1e-5;
  bool dropout = false;  // after attention and after the MLP; each keeps a mask of a byte per element

  bool attention_sinks = false;  // a score of each head that no token has (gpt-oss, arXiv 2508.10925)

  // Positions.
  int64_t max_position = 8192;    // the longest sequence, in tokens, that the model is meant for
  int64_t learned_positions = 0;  // rows of a position table; 0 = rotary, ALiBi or none
  double rope_theta = 10000.0;
  std::optional<RopeScaling> rope_scaling = std::nullopt;
  bool yarn = false;  // rotary positions stretched by YaRN (arXiv 2309.00071)
  // Tokens that a query sees, itself included, in a share of the layers (Mistral, arXiv 2310.06825); 0 = all.
  int64_t sliding_window = 0;
  double sliding_window_share = 1;

  double init_std = 0.02;  // of the initial weights
  bool operator==(const ModelSpec&) const = default;

  bool HasExperts(int64_t layer) const { return experts.has_value() && layer >= experts->dense_layers; }
  bool AllLinearBiases() const { return qkv_bias && attention_out_bias && mlp_bias; }
};

// UsageError naming the field: sizes out of range, heads not divisible by kv_heads, experts that do not
// exist. For every model, whether it can be trained or not.
absl::Status Validate(const ModelSpec& spec);

// What this version's trainer lacks to run the model, one reason per feature with its config.json field;
// empty = it can be trained.
std::vector<std::string> WhyNotTrainable(const ModelSpec& spec);

// Validate and WhyNotTrainable, then the rules of the family: an even head_dim, and biases that a Hugging
// Face folder can express, since every trained model can be exported. UsageError naming the field.
absl::Status CheckTrainable(const ModelSpec& spec);

// A block is the unit that is gathered, recomputed and scheduled: block 0 is the embedding, blocks
// 1..layers the transformer layers, block layers+1 the head (final norm, output projection, loss).
constexpr int EmbeddingBlock() { return 0; }
inline int HeadBlock(const ModelSpec& spec) { return static_cast<int>(spec.layers) + 1; }
inline int NumBlocks(const ModelSpec& spec) { return static_cast<int>(spec.layers) + 2; }

enum class Init : uint8_t { kNormal, kOnes, kZeros };

// One logical tensor under its Hugging Face name, in the order in which it lies in its block's flat
// buffer. Fused products (q|k|v, gate|up) rely on that order: their rows are adjacent.
struct Parameter {
  std::string name;            // "model.layers.0.self_attn.q_proj.weight"
  std::vector<int64_t> shape;  // row-major; a linear weight is [out, in]
  int block = 0;               // the block whose bucket holds it
  std::vector<int> used_by;    // blocks that read it; two for tied embeddings
  Init init = Init::kNormal;
  double init_std = 0.02;  // for kNormal
  int64_t numel = 0;
  // Tensor parallelism deals out the indices of this dimension in whole units (a head, say); -1: every rank
  // has all of them.
  int tensor_dim = -1;
  int64_t tensor_unit = 1;  // divides the dimension
};

// What one of `ranks` has of a parameter that tensor parallelism deals out: whole units in the order of the
// ranks, of which the first have one more where the ranks do not divide them. Of fewer units than ranks,
// which they divide, several neighbours have the same one (a head of keys for several of queries).
struct TensorShare {
  int64_t begin = 0;  // first index of tensor_dim
  int64_t count = 0;  // indices
  int64_t copies = 1;
};
// `parameter` has a tensor_dim.
TensorShare ShareOf(const Parameter& parameter, int64_t index, int64_t ranks);

// Exact and ordered by block. With tied embeddings the embedding is listed once (block 0) and used
// by the head as well; "lm_head.weight" does not exist then. The model must be trainable.
std::vector<Parameter> Inventory(const ModelSpec& spec);

// Numbers of elements, for every model: those of transformers' parameters, without layers that predict
// further tokens, which it does not load.
struct LayerParameters {
  int64_t matrices = 0;        // cut by tensor parallelism
  int64_t vectors = 0;         // norms and biases: on every rank
  int64_t routed_experts = 0;  // cut by expert parallelism
  int64_t router = 0;
  int64_t total() const { return matrices + vectors + routed_experts + router; }
};
LayerParameters ParametersOfLayer(const ModelSpec& spec, int64_t layer);
int64_t EmbeddingParameters(const ModelSpec& spec);  // with learned positions
int64_t HeadParameters(const ModelSpec& spec);       // final norm, output matrix unless tied
int64_t NumParameters(const ModelSpec& spec);
// Those that one token meets: top_k of the routed experts.
int64_t NumActiveParameters(const ModelSpec& spec);

// Floating-point operations of one training step per token, forward plus backward, matrix products
// only, causal attention counted at half: 6 N' + 6 L h_attn s with N' the weights that multiply for a token
// (no input embedding, top_k of the routed experts) and h_attn = heads * head_dim, of latent attention the
// mean of a key's and a value's. Windows and recompute are not counted. (PaLM's appendix B counts all scores,
// 12 L h_attn s, and every parameter: planner/utilization.h.)
double FlopsPerToken(const ModelSpec& spec, int64_t seq_len);

// A model that recipes and tables name, what this version trains and what it plans alone.
struct NamedModel {
  const char* name = "";    // of model.preset
  const char* source = "";  // where the sizes stand
  ModelSpec spec;
};

// Sorted by size, from "toy-1m" to "kimi-k2".
absl::Span<const NamedModel> NamedModels();

// The model of that name, in any spelling of it ("Llama 3.1 8B"). UsageError with the names that there are.
absl::StatusOr<ModelSpec> Preset(absl::string_view name);

// The names of models that can be trained, and of those that can only be planned; each sorted by size.
std::vector<std::string> PresetNames();
std::vector<std::string> PlannedPresetNames();

}  // namespace trainctl::model
