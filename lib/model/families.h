// Model families: the features of each that the sizes in config.json do not determine, and the names of its
// parameters. A family is one row of the table in families.cc. Pure data; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "model/architecture.h"
#include "model/folder_form.h"
#include "model/parameter_names.h"

namespace trainctl::model {

enum class Mixture : uint8_t { kNone, kRouted, kLatent };  // kLatent is DeepSeek's attention and experts

// The projections that have biases.
enum class Bias : uint8_t {
  kNone,
  kQkv,              // queries, keys and values, unless a mixture's qkv_bias is false
  kAll,              // all, unless attention_bias is false
  kByFile,           // those of attention if attention_bias is true, and of the MLP if mlp_bias is true
  kAttentionByFile,  // all projections of attention if attention_bias is true; none of the MLP
  kMlp,              // those of the MLP
  kUseBias           // all or none, by Family::use_bias_key or no_bias
};

// The layers that use a sliding window, as in transformers' modeling_<family>.py.
enum class Windows : uint8_t {
  kNone,
  kAll,
  kListed,       // the layers that layer_types names; all layers if config.json has no layer_types
  kPattern,      // all except every n-th (sliding_window_pattern)
  kEverySecond,  // the first, the third, and so on
  kUpper         // the layers from max_window_layers on, if use_sliding_window is true
};

// The layers without RoPE (NoPE).
enum class NoPositions : uint8_t {
  kNone,
  kListed,          // layers with a 0 in no_rope_layers or, without it, every no_rope_layer_interval-th layer
  kUnwindowed,      // layers without a window
  kUnwindowedIfAny  // layers without a window, if any layer has one
};

// How config.json states the factor of the attention scores.
enum class ScoreScale : uint8_t {
  kHeadDim,        // always 1 / sqrt(head_dim)
  kPreAttnScalar,  // 1 / sqrt(query_pre_attn_scalar)
  kMultiplier      // attention_multiplier
};

// A field of config.json with a single value that trainctl computes.
struct FixedField {
  const char* key;
  const char* value;         // as JSON; null if the family's class computes the same with every value
  bool is_required = false;  // whether an absent field means another value; such models cannot be planned
};

// The values come from modeling_*.py and configuration_*.py in huggingface/transformers.
struct Family {
  const char* model_type;
  const char* models;  // published models of the family, such as "Qwen 3, dense"
  // The family's name in recipes and checkpoints, if another family has its model_type. A config.json with
  // that model_type belongs to the family whose fixed_fields it states. Null if the name is the model_type.
  const char* name = nullptr;
  bool gated = true;
  kernels::Activation activation = kernels::Activation::kSiLU;  // unless config.json states another one
  NormKind norm = NormKind::kRms;
  bool norm_bias = true;  // whether a NormKind::kLayer norm has a bias
  kernels::Gain gain = kernels::Gain::kWeight;
  Bias bias = Bias::kNone;
  bool bias_default = false;  // used if config.json does not state it
  bool tied_default = false;  // used if config.json does not state it
  bool learned_positions = false;
  int64_t position_offset = 0;  // rows of the position table before that of the first position
  QkNorm qk_norm = QkNorm::kNone;
  NormPlaces norms = NormPlaces::kBefore;
  bool embedding_norm = false;
  bool scales_embedding = false;  // whether to multiply by the square root of the hidden size
  bool head_bias = false;
  bool expert_bias = false;
  bool gated_shared_experts = false;
  bool attention_sinks = false;
  Windows windows = Windows::kNone;
  int64_t window = 0;         // default in tokens; a null sliding_window in config.json means no window
  int64_t window_period = 6;  // default of sliding_window_pattern
  NoPositions no_positions = NoPositions::kNone;
  Mixture mixture = Mixture::kNone;
  bool clamped_gate = false;
  kernels::RopePairs rope_pairs = kernels::RopePairs::kHalves;

  // The fields below matter only for families that can be trained. First, defaults for fields that
  // config.json does not have:
  int64_t max_position = 2048;
  double norm_eps = 1e-6;
  double rope_theta = 10000;
  double rope_share = 1;
  // original_max_position_embeddings, in families whose only scaling of RoPE is LongRoPE; 0 in others
  int64_t original_max_position = 0;
  // Base of RoPE in layers with a window, which have no scaling; 0 if they have the RoPE of the others.
  double window_rope_theta = 0;
  double query_pre_attn_scalar = 256;  // with ScoreScale::kPreAttnScalar
  double attention_softcap = 0;        // attn_logit_softcapping
  double logit_softcap = 0;            // final_logit_softcapping
  double logit_multiplier = 1;
  int64_t head_dim = 0;           // 0 for hidden size / heads
  int64_t ffn = 0;                // 0 if the field is required or follows from the hidden size
  bool has_usual_ffn = false;     // whether an absent ffn_key means 4 * hidden size
  int64_t rotary_dim = 0;         // with rotary_dim_key
  bool has_kv_heads = true;       // whether config.json can state num_key_value_heads
  bool has_multi_query = false;   // whether multi_query (one key-value head, the default) replaces that field
  bool states_activation = true;  // whether activation_key can state another function than `activation`
  bool has_head_dim = true;       // whether config.json can state a head_dim other than hidden size / heads
  // Whether config.json can state these fields:
  bool states_rope_share = false;  // partial_rotary_factor; true as well if the default is not 1
  bool states_attention_softcap = false;
  bool states_logit_softcap = false;
  bool states_multipliers = false;  // embedding_multiplier, residual_multiplier, logits_scaling
  bool has_rope_alpha = false;  // whether an `alpha` in the table of RoPE means RopeScalingKind::kNtkAlpha
  ScoreScale score_scale = ScoreScale::kHeadDim;
  // Keys of config.json.
  const char* norm_eps_key = "rms_norm_eps";  // null if config.json cannot state it
  const char* init_std_key = "initializer_range";
  const char* activation_key = "hidden_act";
  const char* activation_alias = nullptr;  // a name of another function that the class takes for `activation`
  const char* kv_heads_key = "num_key_value_heads";
  // A field that must be true for kv_heads_key to count instead of multi_query; null if multi_query always
  // counts.
  const char* grouped_query_key = nullptr;
  const char* use_bias_key = "use_bias";              // with Bias::kUseBias
  const char* attention_bias_key = "attention_bias";  // with Bias::kAttentionByFile; default in bias_default
  const char* qkv_bias_key = nullptr;  // with Bias::kQkv: whether there are biases; default in bias_default
  const char* rope_theta_key = "rope_theta";
  const char* rope_share_key = "partial_rotary_factor";
  const char* window_rope_theta_key = "rope_local_base_freq";  // null if window_rope_theta equals rope_theta
  // The number of elements of each head that RoPE rotates. A config.json with this field states nothing else
  // about RoPE.
  const char* rotary_dim_key = nullptr;
  const char* logit_multiplier_key = nullptr;  // if the logits are multiplied by a field of config.json
  const char* ffn_key = "intermediate_size";
  // Whether config.json may have other keys for the sizes, such as n_embd for hidden_size.
  bool has_other_keys = false;
  // The class whose code published folders contain (auto_map), and which computes the same as `class_name`.
  // Null if published folders contain no code.
  const char* code_class = nullptr;
  absl::Span<const FixedField> fixed_fields;
  // For a family whose files list other kinds of layers too, which trainctl does not describe: the value in
  // layer_types of a layer that attends to all tokens.
  const char* full_attention_name = nullptr;
  FolderForm folder_form;
  // The class that the trainer reproduces, of transformers or code_class. Null if the family can only be
  // planned.
  const char* class_name = nullptr;
  // Null if the family cannot be trained, or if its recipes and checkpoints have the family "llama" (Qwen 2).
  const ParameterNames* names = nullptr;
};

// Default of no_rope_layer_interval (NoPositions::kListed).
inline constexpr int64_t kNoRopeLayerInterval = 4;

absl::Span<const Family> Families();
// Returns whether this version trains the family. Other families can only be planned, for other trainers.
inline bool IsTrained(const Family& family) { return family.class_name != nullptr; }
inline const char* NameOf(const Family& family) {
  return family.name != nullptr ? family.name : family.model_type;
}
// Returns the family with this name, or null if it is not known.
const Family* FindFamily(absl::string_view name);
// Returns the family whose config.json describes the model. This is the family that Architecture::family
// names, or Qwen 2 for a "llama" with biases on queries, keys and values only. Returns null if it is not
// known.
const Family* FindFamilyOf(const Architecture& spec);

// Sets the fields that the family determines, in all layers. Does not change fields that config.json or a
// recipe states.
void ApplyFamily(const Family& family, Architecture& spec);

// Returns a model without sizes that has the family's fields and its defaults that matter for training. If
// the family has several kinds of layers by default, the model has one period of them, which SetNumLayers
// repeats. `name` is one of NamedFamilies.
Architecture BaseOfFamily(absl::string_view name);

// Returns whether config.json can state the fraction of each head that RoPE rotates.
bool StatesRopeShare(const Family& family);
// Returns whether config.json can state the base and the scaling of RoPE.
inline bool StatesRope(const Family& family) {
  return !family.learned_positions && family.rotary_dim_key == nullptr;
}

// Returns the families that a recipe can name in `model.family`.
std::vector<std::string> NamedFamilies();

// Returns the names of an activation in config.json; the first is the name to write.
absl::Span<const char* const> NamesOf(kernels::Activation activation);
// Returns the activation with this name, or nullopt if it is not known.
std::optional<kernels::Activation> FindActivation(absl::string_view name);
// Returns the first name of each activation.
std::vector<std::string> ActivationNames();

}  // namespace trainctl::model
