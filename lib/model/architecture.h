// Architecture describes a decoder-only transformer as data. The trainer, the planner and the Hugging Face
// reader all use it. It stores the distinct kinds of layers once, and a list with the kind of each layer. It
// can describe models that this version cannot train; WhyNotTrainable returns the reasons. Pure; thread-safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(model::Architecture spec, model::Preset("llama3.1-8b"));
//   SetNumLayers(spec, 8);
//   TRAINCTL_RETURN_IF_ERROR(model::CheckTrainable(spec));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "kernels/variants.h"
#include "model/rope_scaling.h"

namespace trainctl::model {

struct Rope {
  double theta = 10000.0;
  std::optional<RopeScaling> scaling;
  // Fraction of each head that is rotated. The rotated elements are at the beginning of the head.
  double share = 1;
  kernels::RopePairs pairs = kernels::RopePairs::kHalves;
  bool operator==(const Rope&) const = default;
};

// RMSNorm (arXiv 1910.07467), or LayerNorm with a bias.
enum class NormKind : uint8_t { kRms, kLayer };

struct Norm {
  NormKind kind = NormKind::kRms;
  kernels::Gain gain = kernels::Gain::kWeight;
  bool bias = true;  // whether a LayerNorm has a bias; an RMSNorm never has one
  double eps = 1e-5;
  bool has_bias() const { return kind == NormKind::kLayer && bias; }
  bool operator==(const Norm&) const = default;
};

// Multi-head latent attention: low-rank projections of queries, keys and values (DeepSeek-V2, arXiv
// 2405.04434, section 2.1). All widths are in elements; the last three are per head.
struct LatentAttention {
  int64_t query_rank = 0;  // 0 if queries have a single full-rank projection
  int64_t key_value_rank = 0;
  int64_t nope_dim = 0;  // part of queries and keys without positions
  int64_t rope_dim = 0;  // part of queries and keys with rotary positions
  int64_t value_dim = 0;
  bool operator==(const LatentAttention&) const = default;
};

// Normalization of queries and keys.
enum class QkNorm : uint8_t {
  kNone,
  kHead,           // of each head (arXiv 2302.05442)
  kHeadAfterRope,  // of each head, after RoPE instead of before (HunYuan)
  kWhole           // over all heads together (OLMo 2, arXiv 2501.00656)
};

struct Attention {
  int64_t heads = 0;     // number of query heads
  int64_t kv_heads = 0;  // number of key-value heads; divides `heads` (grouped-query, arXiv 2305.13245)
  int64_t head_dim = 0;  // elements per head; equals value_dim with latent attention
  // Sliding window: number of tokens that a query attends to, including its own (Mistral, arXiv 2310.06825).
  // 0 for no limit.
  int64_t window = 0;
  double scale = 0;    // factor of the scores; 0 for 1 / sqrt(head_dim)
  double softcap = 0;  // scores s become softcap * tanh(s / softcap) (Gemma 2, arXiv 2408.00118); 0 for none
  bool rope = true;    // false for a layer without positions (NoPE, arXiv 2305.19466)
  bool qkv_bias = false;
  bool out_bias = false;
  // Whether each head has a learned attention sink, a score that belongs to no token (gpt-oss, arXiv
  // 2508.10925).
  bool sinks = false;
  QkNorm qk_norm = QkNorm::kNone;
  std::optional<LatentAttention> latent;  // if set, the layer uses multi-head latent attention
  bool operator==(const Attention&) const = default;
};

struct Mlp {
  int64_t ffn = 0;    // inner width, in elements
  bool gated = true;  // true: gate, up and down (SwiGLU, arXiv 2002.05202); false: up and down
  kernels::Activation activation = kernels::Activation::kSiLU;  // applied to the gate, or to up if not gated
  bool bias = false;                                            // whether all of its projections have a bias
  bool clamped = false;  // whether gate and up are clamped before the activation (gpt-oss, arXiv 2508.10925)
  bool operator==(const Mlp&) const = default;
};

// Routed experts, which replace the MLP (Switch Transformers, arXiv 2101.03961). Mlp::gated and Mlp::clamped
// of the layer apply to them too.
struct Experts {
  int64_t num_experts = 0;
  int64_t top_k = 0;       // routed experts per token
  int64_t ffn = 0;         // inner width of one expert
  int64_t shared_ffn = 0;  // total inner width of the shared experts, which process every token; 0 for none
  bool bias = false;       // whether the router and all projections of the routed experts have a bias
  // Whether a projection to one element gates the output of the shared experts (Qwen2-MoE, arXiv 2407.10671).
  bool gated_shared = false;
  bool operator==(const Experts&) const = default;
};

// Positions of the norms in a layer: one before attention and one before the MLP; one shared by attention and
// MLP, which run in parallel (GPT-J); one before and one after each of them (Gemma 2, arXiv 2408.00118); one
// after each of them (EXAONE 4, arXiv 2507.11407); or one before each of them, which run in parallel
// (GPT-NeoX, arXiv 2204.06745).
enum class NormPlaces : uint8_t { kBefore, kShared, kBeforeAndAfter, kAfter, kParallel };
inline bool HasNormsBefore(NormPlaces places) { return places != NormPlaces::kAfter; }
// Returns whether the MLP has a norm before it that attention does not use.
inline bool HasNormBeforeMlp(NormPlaces places) {
  return HasNormsBefore(places) && places != NormPlaces::kShared;
}
inline bool HasNormsAfter(NormPlaces places) {
  return places == NormPlaces::kBeforeAndAfter || places == NormPlaces::kAfter;
}

struct Layer {
  Attention attention;
  Mlp mlp;  // in a layer with experts, the MLP of the family's layers without experts
  std::optional<Experts> experts;
  NormPlaces norms = NormPlaces::kBefore;
  bool operator==(const Layer&) const = default;
};

// Sizes in elements.
struct Architecture {
  std::string family = "llama";  // "llama" (also for Qwen2), or the model_type of transformers
  int64_t hidden = 0;            // width of the residual stream
  int64_t vocab = 0;
  std::vector<Layer> kinds = {Layer()};  // distinct kinds of layers; at least one
  std::vector<int> layers;               // for each layer, its index in `kinds`
  // Layers for multi-token prediction, in addition to `layers` (DeepSeek-V3, arXiv 2412.19437, section 2.2).
  int64_t mtp_layers = 0;
  int64_t max_position = 8192;    // longest sequence that the model is designed for, in tokens
  int64_t learned_positions = 0;  // rows of the position table; 0 for rotary, ALiBi or no positions
  int64_t position_offset = 0;    // row of the first position in that table (2 in OPT)
  Rope rope;
  // RoPE's theta in layers with a window, if these layers have their own (Gemma 3, arXiv 2503.19786). The
  // frequencies of these layers are then not scaled. 0 if these layers use `rope`.
  double window_rope_theta = 0;
  Norm norm;
  // Factors of the embedding's output, of what attention and MLP add to the residual stream, and of the
  // logits (Granite, arXiv 2405.04324).
  double embedding_multiplier = 1, residual_multiplier = 1, logit_multiplier = 1;
  double logit_softcap = 0;  // logits x become logit_softcap * tanh(x / logit_softcap) (Gemma 2); 0 for none
  bool scales_embedding =
      false;                    // whether the embedding's output is multiplied by the square root of `hidden`
  bool embedding_norm = false;  // whether a norm follows the embedding (BLOOM, arXiv 2211.05100)
  bool tie_embeddings = false;  // whether the head uses the embedding matrix
  bool head_bias = false;
  bool dropout = false;    // after attention and after the MLP; each stores a mask of one byte per element
  double init_std = 0.02;  // standard deviation of the initial weights
  bool operator==(const Architecture&) const = default;
};

// Sizes of a Llama-like model, in which all layers are the same.
struct LlamaSizes {
  int64_t layers = 0, hidden = 0, ffn = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0;
  int64_t max_position = 8192;
};
// Returns a Llama model of these sizes. All other fields have their default values.
Architecture LlamaOf(const LlamaSizes& sizes);

// Sets max_position. A table of positions gets as many rows.
void SetMaxPosition(Architecture& spec, int64_t value);

inline int64_t NumLayers(const Architecture& spec) { return static_cast<int64_t>(spec.layers.size()); }
// Truncates the list of layers, or extends it with the pattern that repeats at its end. Limits `count` to one
// more than Validate accepts, so that a huge number needs little memory and Validate still rejects it.
void SetNumLayers(Architecture& spec, int64_t count);
// Removes the kinds that no layer has.
void DropUnusedKinds(Architecture& spec);
// Returns UsageError if Validate rejects every model with this number of layers.
absl::Status CheckNumLayers(int64_t count);
// Replaces all layers by `count` copies of the layer at index `layer`.
void RepeatLayer(Architecture& spec, int64_t layer, int64_t count);

inline const Layer& LayerAt(const Architecture& spec, int64_t layer) {
  return spec.kinds[static_cast<size_t>(spec.layers[static_cast<size_t>(layer)])];
}

// Return the fields that all layers share. Only windows, RoPE and experts differ between the layers of any
// known model, so do not read those here.
inline const Attention& AttentionOf(const Architecture& spec) { return spec.kinds[0].attention; }
inline const Mlp& MlpOf(const Architecture& spec) { return spec.kinds[0].mlp; }
// Returns whether any layer has RoPE.
bool HasRope(const Architecture& spec);
// Returns the number of elements at the beginning of each head that RoPE rotates.
int64_t RotatedDim(const Architecture& spec);
inline NormPlaces NormPlacesOf(const Architecture& spec) { return spec.kinds[0].norms; }
// Returns whether every projection of attention and of the MLP has a bias.
bool HasAllLinearBiases(const Architecture& spec);

// Sets a field of every layer. Example: SetEach(spec, &Attention::heads, 8).
template <typename T>
void SetEach(Architecture& spec, T Attention::*field, std::type_identity_t<T> value) {
  for (Layer& kind : spec.kinds) kind.attention.*field = value;
}
template <typename T>
void SetEach(Architecture& spec, T Mlp::*field, std::type_identity_t<T> value) {
  for (Layer& kind : spec.kinds) kind.mlp.*field = value;
}
template <typename T>
void SetEach(Architecture& spec, T Layer::*field, std::type_identity_t<T> value) {
  for (Layer& kind : spec.kinds) kind.*field = value;
}
// Adds or removes the biases that HasAllLinearBiases checks.
void SetAllLinearBiases(Architecture& spec, bool value);

// Returns the experts of the first kind of layer that has them, or null if the model has none.
const Experts* FindExperts(const Architecture& spec);
inline bool HasExperts(const Architecture& spec, int64_t layer) {
  return LayerAt(spec, layer).experts.has_value();
}
// Returns the number of layers before the first one with experts.
int64_t NumDenseLayers(const Architecture& spec);
// Sets the experts of all layers except the first `dense_layers`, which get none. Removes all experts if
// `experts` is nullopt.
void SetExperts(Architecture& spec, const std::optional<Experts>& experts, int64_t dense_layers = 0);

// Returns the sliding window of the layers that have one, in tokens, or 0 if no layer has one.
int64_t WindowOf(const Architecture& spec);
// Returns the fraction of layers that have a window. The model must have at least one layer.
double WindowShare(const Architecture& spec);
// Sets the window of all layers. If `period` is positive, every `period`-th layer gets no window.
void SetWindow(Architecture& spec, int64_t window, int64_t period = 0);
// Sets the window of the layers that have one or, if none has, of all layers.
void ChangeWindow(Architecture& spec, int64_t window);
// Sets the window of the layers for which `has_window` is true, and removes it from the others. `has_window`
// has one value per layer.
void SetWindows(Architecture& spec, int64_t window, const std::vector<bool>& has_window);
// Sets RoPE (Attention::rope) of each layer. `has_rope` has one value per layer.
void SetRopes(Architecture& spec, const std::vector<bool>& has_rope);

// The layers' attention, as in `model.layer_types` of a recipe: "full_attention" or "sliding_attention", with
// "_nope" appended if the layer has no RoPE. Returns the shortest list that gives all layers when it is
// repeated. Returns an empty list if all layers have RoPE and the same type, unless that is unusual for the
// family.
std::vector<std::string> LayerTypesOf(const Architecture& spec);
// Sets the types of all layers by repeating a list of such names, which must not be empty. Layers with a
// window get the window of the model. Returns UsageError if a name is unknown, or if there is a window in the
// list and none in the model.
absl::Status SetLayerTypes(Architecture& spec, const std::vector<std::string>& types);

// Returns UsageError if a size is out of range, `heads` is not a multiple of `kv_heads`, or `top_k` is not
// between 1 and `num_experts`. Also returns UsageError if a norm, RoPE or initialization constant is invalid,
// or if the model has more than 1e18 parameters. Messages about sizes name the field. Applies to every model,
// trainable or not.
absl::Status Validate(const Architecture& spec);

// Returns the features of the model that this version cannot train, with their config.json fields if they
// have one. Empty if the model can be trained.
std::vector<std::string> WhyNotTrainable(const Architecture& spec);

// Returns UsageError if Validate fails or WhyNotTrainable is not empty. Also requires an even `head_dim`, and
// a combination of biases that a Hugging Face folder can express, because every trained model can be
// exported. The message names the field or feature.
absl::Status CheckTrainable(const Architecture& spec);

// A block is the unit of parameter all-gathers, recomputation and scheduling. Block 0 is the embedding.
// Blocks 1 to `layers` are the transformer layers. Block `layers` + 1 is the head (final norm, output
// projection and loss).
constexpr int EmbeddingBlock() { return 0; }
inline int HeadBlock(const Architecture& spec) { return static_cast<int>(NumLayers(spec)) + 1; }
inline int NumBlocks(const Architecture& spec) { return static_cast<int>(NumLayers(spec)) + 2; }

}  // namespace trainctl::model
