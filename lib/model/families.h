// The families of models: what each has beyond the sizes in its config.json, and the names of its parameters.
// A family is one row of the table in families.cc. Pure data; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "model/architecture.h"
#include "model/parameter_names.h"

namespace trainctl::model {

enum class Mixture : uint8_t { kNone, kRouted, kLatent };  // kLatent: DeepSeek's attention and experts

// The projections that have biases.
enum class Bias : uint8_t {
  kNone,
  kQkv,              // queries, keys and values (a mixture's qkv_bias may say otherwise)
  kAll,              // all, unless attention_bias (or OPT's enable_bias) says otherwise
  kByFile,           // attention_bias and mlp_bias say it
  kAttentionByFile,  // attention_bias says it for all projections of attention; the MLP has none
  kUseBias           // use_bias, bias or no_bias says it for all; see Family::bias_default
};

// The layers that attend within a sliding window, as in transformers' modeling_<family>.py.
enum class Windows : uint8_t {
  kNone,
  kAll,
  kPattern,      // all but every n-th (sliding_window_pattern)
  kEverySecond,  // the first, the third and so on
  kUpper         // those from max_window_layers on, if use_sliding_window is true
};

// The values come from modeling_*.py and configuration_*.py in huggingface/transformers.
struct Family {
  const char* model_type;
  bool gated = true;
  kernels::Activation activation = kernels::Activation::kSiLU;
  NormKind norm = NormKind::kRms;
  kernels::Gain gain = kernels::Gain::kWeight;
  Bias bias = Bias::kNone;
  bool bias_default = false;  // if the file does not say
  bool tied_default = false;  // if the file does not say
  bool learned_positions = false;
  QkNorm qk_norm = QkNorm::kNone;
  NormPlaces norms = NormPlaces::kBefore;
  bool embedding_norm = false;
  bool scales_embedding = false;  // by the square root of the hidden size
  bool head_bias = false;
  bool expert_bias = false;
  bool gated_shared_experts = false;
  bool attention_sinks = false;
  Windows windows = Windows::kNone;
  int64_t window = 0;  // in tokens, if the file has no sliding_window (null means that there is none)
  Mixture mixture = Mixture::kNone;
  bool clamped_gate = false;
  kernels::RopePairs rope_pairs = kernels::RopePairs::kHalves;

  // The rest is for families that can be trained, and matters to them alone. Defaults of fields that are not
  // in the file:
  int64_t max_position = 2048;
  double norm_eps = 1e-6;
  double rope_theta = 10000;
  double rope_share = 1;
  int64_t head_dim = 0;      // 0: hidden size / heads
  bool has_head_dim = true;  // whether config.json can state another head_dim than hidden size / heads
  // Keys of config.json.
  const char* norm_eps_key = "rms_norm_eps";
  const char* activation_key = "hidden_act";  // counts before hidden_act
  const char* qkv_bias_key =
      nullptr;  // with Bias::kQkv: says whether there are biases, which is false if absent
  // The class of transformers that the trainer reproduces; null if the family can only be planned.
  const char* class_name = nullptr;
  // Null for a family that is trained as "llama": its recipes and checkpoints say so.
  const ParameterNames* names = nullptr;
};

absl::Span<const Family> Families();
// Returns null if there is no such family.
const Family* FindFamily(absl::string_view model_type);

// Sets the fields that the family determines, in all layers. Leaves those that config.json or a recipe
// states.
void ApplyFamily(const Family& family, Architecture& spec);

// Returns a model without sizes, with the family's fields and, where they matter to training, its defaults.
// `name` is one of NamedFamilies.
Architecture BaseOfFamily(absl::string_view name);

// Returns the families that can be trained by their name (`model.family`).
std::vector<std::string> NamedFamilies();

// Returns the names of an activation in config.json; the first is the one to write.
absl::Span<const char* const> NamesOf(kernels::Activation activation);

}  // namespace trainctl::model
