#include "model/architecture.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "model/config_json.h"
#include "model/families.h"
#include "model/parameters.h"

namespace trainctl::model {
namespace {

// Limits that keep every product of sizes below 2^62, and an inventory below some hundred thousand entries.
// The largest published model uses less than a tenth of each.
struct Size {
  const char* name;
  int64_t value;
  int64_t least;
  int64_t most;
};

constexpr int64_t kMostLayers = 1 << 14;
constexpr int64_t kMostColumns = 1 << 20;
constexpr int64_t kMostInner = 1 << 22;
constexpr int64_t kMostRows = 1 << 26;  // of a table of positions
constexpr int64_t kMostHeadDim = 1 << 12;
constexpr double kMostParameters = 1e18;

absl::Status CheckSize(const Size& size) {
  if (size.value >= size.least && size.value <= size.most) return absl::OkStatus();
  return UsageError(absl::StrCat("model.", size.name, " = ", size.value, " is out of range: ", size.least,
                                 " to ", size.most));
}

absl::Status ValidateSizes(const Architecture& spec, const Layer& layer) {
  const Attention& attention = layer.attention;
  const LatentAttention latent = attention.latent.value_or(LatentAttention{});
  const Experts experts = layer.experts.value_or(Experts{});
  const int64_t least = layer.experts.has_value() ? 1 : 0;
  const Size sizes[] = {
      {"layers", NumLayers(spec), 1, kMostLayers},
      {"hidden", spec.hidden, 1, kMostColumns},
      {"heads", attention.heads, 1, 1 << 14},
      {"kv_heads", attention.kv_heads, 1, 1 << 14},
      {"head_dim", attention.head_dim, 1, kMostHeadDim},
      {"ffn", layer.mlp.ffn, 1 - least, kMostInner},
      {"vocab", spec.vocab, 1, 1 << 24},
      {"max_position", spec.max_position, 1, int64_t{1} << 31},
      {"learned_positions", spec.learned_positions, 0, kMostRows},
      {"sliding_window", attention.window, 0, int64_t{1} << 40},
      {"mtp_layers", spec.mtp_layers, 0, kMostLayers},
      {"latent.query_rank", latent.query_rank, 0, kMostColumns},
      {"latent.key_value_rank", latent.key_value_rank, 0, kMostColumns},
      {"latent.nope_dim", latent.nope_dim, 0, kMostHeadDim},
      {"latent.rope_dim", latent.rope_dim, 0, kMostHeadDim},
      {"latent.value_dim", latent.value_dim, 0, kMostHeadDim},
      {"experts.num_experts", experts.num_experts, least, 1 << 16},
      {"experts.ffn", experts.ffn, least, kMostColumns},
      {"experts.shared_ffn", experts.shared_ffn, 0, kMostInner},
  };
  for (const Size& size : sizes) TRAINCTL_RETURN_IF_ERROR(CheckSize(size));
  return absl::OkStatus();
}

absl::Status ValidateExperts(const Experts& experts) {
  if (experts.top_k >= 1 && experts.top_k <= experts.num_experts) return absl::OkStatus();
  return UsageError(absl::StrCat("a token visits ", experts.top_k, " of ", experts.num_experts, " experts"));
}

absl::Status ValidateLayer(const Layer& layer) {
  const Attention& attention = layer.attention;
  if (attention.heads % attention.kv_heads != 0) {
    return UsageError(absl::StrCat("model.heads = ", attention.heads,
                                   " is not a multiple of model.kv_heads = ", attention.kv_heads,
                                   ": every key-value head serves the same number of query heads"));
  }
  if (attention.heads * attention.head_dim > (1 << 20)) {
    return UsageError(absl::StrCat("model.heads * model.head_dim = ", attention.heads * attention.head_dim,
                                   " is out of range: at most ", 1 << 20));
  }
  return layer.experts.has_value() ? ValidateExperts(*layer.experts) : absl::OkStatus();
}

absl::Status ValidateYarn(const RopeScaling& scaling, double theta) {
  if (!(scaling.beta_slow > 0 && scaling.beta_fast > scaling.beta_slow)) {
    return UsageError(absl::StrCat("model.rope_scaling needs 0 < beta_slow < beta_fast, not ",
                                   scaling.beta_slow, " and ", scaling.beta_fast));
  }
  if (theta > 1) return absl::OkStatus();
  // The bounds divide by its logarithm.
  return UsageError(absl::StrCat("model.rope_theta = ", theta, " must be above 1 for YaRN"));
}

absl::Status ValidateLongRope(const Architecture& spec, const RopeScaling& scaling) {
  const int64_t num_pairs = RotatedDim(spec) / 2;
  const std::pair<const char*, const std::vector<double>*> lists[] = {{"short_factor", &scaling.short_factor},
                                                                      {"long_factor", &scaling.long_factor}};
  for (const auto& [name, divisors] : lists) {
    // Latent attention rotates other widths, and is not trained.
    if (!AttentionOf(spec).latent.has_value() && static_cast<int64_t>(divisors->size()) != num_pairs) {
      return UsageError(absl::StrCat("model.rope_scaling.", name, " has ", divisors->size(),
                                     " numbers but must have ", num_pairs,
                                     ", one for each pair of rotated elements of a head"));
    }
    for (const double divisor : *divisors) {
      if (std::isfinite(divisor) && divisor > 0) continue;
      return UsageError(
          absl::StrCat("model.rope_scaling.", name, " contains ", divisor, "; all must be positive numbers"));
    }
  }
  if (scaling.attention_factor > 0) return absl::OkStatus();
  return UsageError("model.rope_scaling.attention_factor is missing; LongRoPE needs a positive number");
}

absl::Status ValidateDynamic(const Architecture& spec, const RopeScaling& scaling) {
  if (scaling.original_max_position == spec.max_position) return absl::OkStatus();
  return UsageError(absl::StrCat(
      "model.rope_scaling.original_max_position = ", scaling.original_max_position,
      " must be model.max_position = ", spec.max_position,
      " with dynamic scaling: longer sequences would have other frequencies at each length, which this "
      "version does not implement; set model.rope_scaling.type = \"yarn\" for longer sequences"));
}

absl::Status ValidateNtkAlpha(const Architecture& spec, const RopeScaling& scaling) {
  if (!std::isfinite(scaling.alpha) || scaling.alpha <= 0) {
    return UsageError(
        absl::StrCat("model.rope_scaling.alpha = ", scaling.alpha, " must be a positive number"));
  }
  if (AttentionOf(spec).latent.has_value() || RotatedDim(spec) > 2) return absl::OkStatus();
  // The exponent of alpha divides by this minus 2.
  return UsageError(
      absl::StrCat("model.rope_scaling.type = \"ntk_alpha\" needs more than 2 rotated elements "
                   "of a head, and the model has ",
                   RotatedDim(spec)));
}

absl::Status ValidateRopeScaling(const Architecture& spec) {
  const RopeScaling& scaling = *spec.rope.scaling;
  if (!std::isfinite(scaling.factor) || scaling.factor < 1.0) {
    return UsageError(
        absl::StrCat("model.rope_scaling.factor = ", scaling.factor, " must be a number of at least 1"));
  }
  // The blend between the two bands divides by their difference.
  if (!std::isfinite(scaling.low_freq_factor) || !std::isfinite(scaling.high_freq_factor) ||
      scaling.low_freq_factor <= 0 || scaling.high_freq_factor <= scaling.low_freq_factor) {
    return UsageError(absl::StrCat("model.rope_scaling needs 0 < low_freq_factor < high_freq_factor, not ",
                                   scaling.low_freq_factor, " and ", scaling.high_freq_factor));
  }
  if (scaling.original_max_position < 1) {
    return UsageError(absl::StrCat(
        "model.rope_scaling.original_max_position = ", scaling.original_max_position, " must be at least 1"));
  }
  if (!std::isfinite(scaling.attention_factor) || scaling.attention_factor < 0) {
    return UsageError(absl::StrCat("model.rope_scaling.attention_factor = ", scaling.attention_factor,
                                   " must be a positive number"));
  }
  switch (scaling.kind) {
    case RopeScalingKind::kLlama3:
    case RopeScalingKind::kLinear:
      return absl::OkStatus();
    case RopeScalingKind::kYarn:
      return ValidateYarn(scaling, spec.rope.theta);
    case RopeScalingKind::kLongRope:
      return ValidateLongRope(spec, scaling);
    case RopeScalingKind::kDynamic:
      return ValidateDynamic(spec, scaling);
    case RopeScalingKind::kNtkAlpha:
      return ValidateNtkAlpha(spec, scaling);
  }
  return absl::OkStatus();
}

// Checks the factors and caps. A field may be zero only if 0 means that the model does not have it.
absl::Status ValidateMultipliers(const Architecture& spec) {
  const Attention& attention = AttentionOf(spec);
  const std::tuple<const char*, double, bool> numbers[] = {
      {"embedding_multiplier", spec.embedding_multiplier, false},
      {"residual_multiplier", spec.residual_multiplier, false},
      {"logit_multiplier", spec.logit_multiplier, false},
      {"attention_scale", attention.scale, true},
      {"attention_softcap", attention.softcap, true},
      {"logit_softcap", spec.logit_softcap, true},
      {"window_rope_theta", spec.window_rope_theta, true},
  };
  for (const auto& [name, value, may_be_zero] : numbers) {
    if (std::isfinite(value) && (value > 0 || (may_be_zero && value == 0))) continue;
    return UsageError(absl::StrCat("model.", name, " = ", value, " must be a positive number"));
  }
  return absl::OkStatus();
}

// Replaces the layers one by one. Kinds are in the order in which layers first have them.
void SetLayers(Architecture& spec, const std::vector<Layer>& layers) {
  spec.kinds.clear();
  spec.layers.clear();
  for (const Layer& layer : layers) {
    const auto known = std::find(spec.kinds.begin(), spec.kinds.end(), layer);
    spec.layers.push_back(static_cast<int>(known - spec.kinds.begin()));
    if (known == spec.kinds.end()) spec.kinds.push_back(layer);
  }
}

// Changes each layer by its index. Without layers the first kind is changed as the first layer.
template <typename Change>
void ChangeLayers(Architecture& spec, const Change& change) {
  if (spec.layers.empty()) return change(spec.kinds[0], 0);
  std::vector<Layer> layers;
  for (int64_t i = 0; i < NumLayers(spec); ++i) change(layers.emplace_back(LayerAt(spec, i)), i);
  SetLayers(spec, layers);
}

// Names of layer types. Bit 0 of the index is set if the layer has a window, bit 1 if it has no RoPE.
constexpr const char* kLayerTypes[] = {"full_attention", "sliding_attention", "full_attention_nope",
                                       "sliding_attention_nope"};

// Returns the length of the shortest list whose repetition begins with `list`.
size_t ShortestRepeatedList(const std::vector<int>& list) {
  size_t period = 1;
  while (period < list.size() &&
         !std::equal(list.begin() + static_cast<int64_t>(period), list.end(), list.begin())) {
    ++period;
  }
  return period;
}

// The period with which the end of a list repeats: the one for which the part that does not repeat and one
// period together are shortest.
size_t PeriodOf(const std::vector<int>& list) {
  size_t best = 1, best_length = list.size() + 1;
  for (size_t period = 1; period < best_length; ++period) {
    size_t begin = list.size() - period;
    while (begin > 0 && list[begin - 1] == list[begin - 1 + period]) --begin;
    if (begin + period < best_length) {
      best = period;
      best_length = begin + period;
    }
  }
  return best;
}

}  // namespace

Architecture LlamaOf(const LlamaSizes& sizes) {
  Architecture spec;
  spec.hidden = sizes.hidden;
  spec.vocab = sizes.vocab;
  spec.max_position = sizes.max_position;
  spec.kinds = {{.attention = {.heads = sizes.heads, .kv_heads = sizes.kv_heads, .head_dim = sizes.head_dim},
                 .mlp = {.ffn = sizes.ffn}}};
  SetNumLayers(spec, sizes.layers);
  return spec;
}

void SetNumLayers(Architecture& spec, int64_t count) {
  const auto size = static_cast<size_t>(std::clamp<int64_t>(count, 0, kMostLayers + 1));
  if (spec.layers.empty()) return spec.layers.assign(size, 0);
  const size_t period = PeriodOf(spec.layers);
  spec.layers.reserve(size);
  while (spec.layers.size() < size) spec.layers.push_back(spec.layers[spec.layers.size() - period]);
  spec.layers.resize(size);
}

absl::Status CheckNumLayers(int64_t count) { return CheckSize({"layers", count, 1, kMostLayers}); }

void RepeatLayer(Architecture& spec, int64_t layer, int64_t count) {
  spec.layers.assign(static_cast<size_t>(count), spec.layers[static_cast<size_t>(layer)]);
}

void SetMaxPosition(Architecture& spec, int64_t value) {
  spec.max_position = value;
  if (spec.learned_positions > 0) spec.learned_positions = value + spec.position_offset;
}

bool HasRope(const Architecture& spec) {
  return std::any_of(spec.kinds.begin(), spec.kinds.end(),
                     [](const Layer& kind) { return kind.attention.rope; });
}

int64_t RotatedDim(const Architecture& spec) {
  return static_cast<int64_t>(static_cast<double>(AttentionOf(spec).head_dim) * spec.rope.share);
}

bool HasAllLinearBiases(const Architecture& spec) {
  return AttentionOf(spec).qkv_bias && AttentionOf(spec).out_bias && MlpOf(spec).bias;
}

void SetAllLinearBiases(Architecture& spec, bool value) {
  SetEach(spec, &Attention::qkv_bias, value);
  SetEach(spec, &Attention::out_bias, value);
  SetEach(spec, &Mlp::bias, value);
}

const Experts* FindExperts(const Architecture& spec) {
  for (const Layer& kind : spec.kinds) {
    if (kind.experts.has_value()) return &*kind.experts;
  }
  return nullptr;
}

int64_t NumDenseLayers(const Architecture& spec) {
  int64_t count = 0;
  while (count < NumLayers(spec) && !HasExperts(spec, count)) ++count;
  return count;
}

void SetExperts(Architecture& spec, const std::optional<Experts>& experts, int64_t dense_layers) {
  ChangeLayers(spec,
               [&](Layer& layer, int64_t i) { layer.experts = i >= dense_layers ? experts : std::nullopt; });
}

int64_t WindowOf(const Architecture& spec) {
  for (const Layer& kind : spec.kinds) {
    if (kind.attention.window > 0) return kind.attention.window;
  }
  return 0;
}

double WindowShare(const Architecture& spec) {
  const auto count = std::count_if(spec.layers.begin(), spec.layers.end(), [&](int kind) {
    return spec.kinds[static_cast<size_t>(kind)].attention.window > 0;
  });
  return static_cast<double>(count) / static_cast<double>(spec.layers.size());
}

void SetWindow(Architecture& spec, int64_t window, int64_t period) {
  ChangeLayers(spec, [&](Layer& layer, int64_t i) {
    layer.attention.window = period > 0 && (i + 1) % period == 0 ? 0 : window;
  });
}

void ChangeWindow(Architecture& spec, int64_t window) {
  const bool any = WindowOf(spec) > 0;
  for (Layer& kind : spec.kinds) {
    if (!any || kind.attention.window > 0) kind.attention.window = window;
  }
}

void DropUnusedKinds(Architecture& spec) {
  ChangeLayers(spec, [](Layer&, int64_t) {});
}

void SetWindows(Architecture& spec, int64_t window, const std::vector<bool>& has_window) {
  TRAINCTL_CHECK(static_cast<int64_t>(has_window.size()) == NumLayers(spec));
  if (has_window.empty()) return;  // config.json does not state a valid number of layers
  ChangeLayers(spec, [&](Layer& layer, int64_t i) {
    layer.attention.window = has_window[static_cast<size_t>(i)] ? window : 0;
  });
}

void SetRopes(Architecture& spec, const std::vector<bool>& has_rope) {
  TRAINCTL_CHECK(static_cast<int64_t>(has_rope.size()) == NumLayers(spec));
  if (has_rope.empty()) return;  // config.json does not state a valid number of layers
  ChangeLayers(spec,
               [&](Layer& layer, int64_t i) { layer.attention.rope = has_rope[static_cast<size_t>(i)]; });
}

std::vector<std::string> LayerTypesOf(const Architecture& spec) {
  std::vector<int> types;  // indices into kLayerTypes
  for (int64_t i = 0; i < NumLayers(spec); ++i) {
    const Attention& attention = LayerAt(spec, i).attention;
    types.push_back((attention.window > 0 ? 1 : 0) + (attention.rope ? 0 : 2));
  }
  const auto is_uniform = [](const std::vector<int>& list) {
    return std::adjacent_find(list.begin(), list.end(), std::not_equal_to<>()) == list.end();
  };
  const bool is_usual = types.empty() || (is_uniform(types) && (types[0] < 2 || spec.learned_positions > 0));
  const Family* family = FindFamily(spec.family);
  if (is_usual && (family == nullptr || BaseOfFamily(spec.family).layers.empty())) return {};
  std::vector<std::string> names;
  for (size_t i = 0; i < ShortestRepeatedList(types); ++i)
    names.emplace_back(kLayerTypes[static_cast<size_t>(types[i])]);
  return names;
}

absl::Status SetLayerTypes(Architecture& spec, const std::vector<std::string>& types) {
  std::vector<bool> has_window, has_rope;
  for (int64_t i = 0; i < NumLayers(spec); ++i) {
    const std::string& name = types[static_cast<size_t>(i) % types.size()];
    const auto* const found = std::find(std::begin(kLayerTypes), std::end(kLayerTypes), name);
    if (found == std::end(kLayerTypes)) {
      return UsageError(absl::StrCat("\"", name, "\" is not one of ", absl::StrJoin(kLayerTypes, ", ")));
    }
    const auto type = found - std::begin(kLayerTypes);
    has_window.push_back(type % 2 == 1);
    has_rope.push_back(type < 2);
  }
  if (has_window.empty()) return absl::OkStatus();
  const int64_t window = WindowOf(spec);
  const bool any_window = std::find(has_window.begin(), has_window.end(), true) != has_window.end();
  if (any_window && window == 0) {
    const Family* family = FindFamilyOf(spec);
    if (family != nullptr && family->windows == Windows::kNone) {
      return UsageError(absl::StrCat("models of the family ", spec.family,
                                     " have no sliding windows; remove \"sliding_attention\""));
    }
    return UsageError("\"sliding_attention\" requires model.sliding_window; set it to a number of tokens");
  }
  SetWindows(spec, window, has_window);
  SetRopes(spec, has_rope);
  return absl::OkStatus();
}

absl::Status Validate(const Architecture& spec) {
  for (const Layer& kind : spec.kinds) TRAINCTL_RETURN_IF_ERROR(ValidateSizes(spec, kind));
  for (const Layer& kind : spec.kinds) TRAINCTL_RETURN_IF_ERROR(ValidateLayer(kind));
  if (!std::isfinite(spec.norm.eps) || spec.norm.eps <= 0) {
    return UsageError(absl::StrCat("model.norm_eps = ", spec.norm.eps, " must be a positive number"));
  }
  if (!std::isfinite(spec.rope.theta) || spec.rope.theta <= 0) {
    return UsageError(absl::StrCat("model.rope_theta = ", spec.rope.theta, " must be a positive number"));
  }
  if (!std::isfinite(spec.init_std) || spec.init_std < 0) {
    return UsageError(absl::StrCat("model.init_std = ", spec.init_std, " must be a number of at least 0"));
  }
  if (!(spec.rope.share > 0 && spec.rope.share <= 1)) {
    return UsageError(absl::StrCat("model.rope_share = ", spec.rope.share, " must be above 0 and at most 1"));
  }
  if (spec.rope.scaling.has_value()) TRAINCTL_RETURN_IF_ERROR(ValidateRopeScaling(spec));
  TRAINCTL_RETURN_IF_ERROR(ValidateMultipliers(spec));
  double most = 0;
  for (const Layer& kind : spec.kinds)
    most = std::max(most, static_cast<double>(ParametersOf(spec, kind).total()));
  if (most * static_cast<double>(NumLayers(spec)) > kMostParameters)
    return UsageError(absl::StrCat("the model has more than ", kMostParameters, " parameters"));
  return absl::OkStatus();
}

std::vector<std::string> WhyNotTrainable(const Architecture& spec) {
  std::vector<std::string> reasons;
  const Family* family = FindFamily(spec.family);
  if (family == nullptr || family->names == nullptr) {
    reasons.push_back(absl::StrCat("model.family = \"", spec.family, "\" (model_type)"));
  }
  const auto any = [&](auto has) { return std::any_of(spec.kinds.begin(), spec.kinds.end(), has); };
  const std::pair<bool, const char*> features[] = {
      {any([](const Layer& layer) { return layer.experts.has_value(); }),
       "routed experts (num_experts, num_local_experts or n_routed_experts)"},
      {any([](const Layer& layer) { return layer.attention.latent.has_value(); }),
       "multi-head latent attention (kv_lora_rank)"},
      {spec.mtp_layers > 0, "layers that predict further tokens (num_nextn_predict_layers)"},
      {any([](const Layer& layer) { return layer.mlp.clamped; }), "a clamped gate (swiglu_limit)"},
      {any([](const Layer& layer) { return layer.attention.sinks; }), "attention sinks"},
      {spec.embedding_norm, "a norm after the embedding"},
      {spec.head_bias && spec.tie_embeddings, "a bias of a tied head"},
      {spec.dropout, "dropout"},
      {spec.learned_positions > 0 && (family == nullptr || !family->learned_positions), "learned positions"},
  };
  for (const auto& [has, feature] : features) {
    if (has) reasons.emplace_back(feature);
  }
  if (reasons.empty()) {
    Architecture usual = spec;
    ApplyFamily(*family, usual);
    SetEach(usual, &Mlp::activation, MlpOf(spec).activation);  // CheckExpressible checks it
    if (usual != spec) {
      reasons.push_back(absl::StrCat("norms, positions or an embedding that models of the family ",
                                     spec.family, " do not have"));
    }
  }
  return reasons;
}

namespace {

// Returns UsageError if config.json of Llama or Qwen 2 cannot express the biases. Llama has one switch for
// all four projections of attention, and Qwen 2 has biases only on queries, keys and values.
absl::Status CheckBiasesOfLlama(const Architecture& spec) {
  const Attention& attention = AttentionOf(spec);
  if (attention.out_bias && !attention.qkv_bias) {
    return UsageError(
        "model.attention_out_bias = true needs model.qkv_bias = true: no Hugging Face architecture of this "
        "family has a bias on the attention output alone");
  }
  if (attention.qkv_bias && !attention.out_bias && MlpOf(spec).bias) {
    return UsageError(
        "model.qkv_bias with model.mlp_bias needs model.attention_out_bias = true as well: no Hugging Face "
        "architecture of this family has the first two alone");
  }
  return absl::OkStatus();
}

// Whether a config.json of the family can express the biases.
bool CanHaveBiases(const Family& family, const Architecture& spec) {
  const Attention& attention = AttentionOf(spec);
  const bool mlp_bias = MlpOf(spec).bias;
  switch (family.bias) {
    case Bias::kNone:
      return !attention.qkv_bias && !attention.out_bias && !mlp_bias;
    case Bias::kQkv:
      return !attention.out_bias && !mlp_bias;
    case Bias::kAttentionByFile:
      return attention.qkv_bias == attention.out_bias && !mlp_bias;
    case Bias::kByFile:
      return attention.qkv_bias == attention.out_bias;
    case Bias::kAll:
      return HasAllLinearBiases(spec);
    case Bias::kMlp:
      return !attention.qkv_bias && !attention.out_bias && mlp_bias;
    case Bias::kUseBias:
      return attention.qkv_bias == attention.out_bias && attention.qkv_bias == mlp_bias;
  }
  return false;
}

// Whether a layer of the family can have, or lack, RoPE as this one does.
bool CanHaveRope(const Family& family, bool any_window, const Attention& attention) {
  if (family.learned_positions) return !attention.rope;
  switch (family.no_positions) {
    case NoPositions::kNone:
      return attention.rope;
    case NoPositions::kListed:
      return true;
    case NoPositions::kUnwindowed:
      return attention.rope == (attention.window > 0);
    case NoPositions::kUnwindowedIfAny:
      return attention.rope == (attention.window > 0 || !any_window);
  }
  return false;
}

// Whether a config.json of the family can express the scaling. With tables by layer type, transformers reads
// neither `truncate` nor an original_max_position_embeddings outside of them, which LongRoPE has.
bool CanHaveScaling(const Family& family, const RopeScaling& scaling) {
  const bool is_long_rope = scaling.kind == RopeScalingKind::kLongRope;
  if (scaling.kind == RopeScalingKind::kNtkAlpha && !family.has_rope_alpha) return false;
  if (family.original_max_position > 0) return is_long_rope;
  if (family.window_rope_theta > 0) return !is_long_rope && scaling.truncate;
  return StatesRope(family);
}

bool CanHaveWindowTheta(const Family& family, const Architecture& spec) {
  if (family.window_rope_theta == 0) return spec.window_rope_theta == 0;
  return family.window_rope_theta_key == nullptr ? spec.window_rope_theta == spec.rope.theta
                                                 : spec.window_rope_theta > 0;
}

// Returns UsageError if a field has a value that a config.json of the family cannot state.
absl::Status CheckStated(const Family& family, const Architecture& spec) {
  const Attention& attention = AttentionOf(spec);
  const double share = WindowShare(spec);
  const bool may_be_mixed = family.windows != Windows::kNone && family.windows != Windows::kAll;
  const bool fits_windows =
      family.windows == Windows::kNone ? share == 0 : may_be_mixed || share == 0 || share == 1;
  const bool fits_ropes = std::all_of(spec.kinds.begin(), spec.kinds.end(), [&](const Layer& layer) {
    return CanHaveRope(family, share > 0, layer.attention);
  });
  const bool has_rope = StatesRope(family);
  const bool can_have_kv_heads = family.has_kv_heads || (family.has_multi_query && attention.kv_heads == 1);
  const bool states_logits = family.states_multipliers || family.logit_multiplier_key != nullptr;
  const std::pair<bool, const char*> fields[] = {
      {can_have_kv_heads || attention.kv_heads == attention.heads, "kv_heads"},
      {family.norm_eps_key != nullptr || spec.norm.eps == family.norm_eps, "norm_eps"},
      {fits_windows, family.windows == Windows::kAll ? "layer_types" : "sliding_window"},
      {fits_ropes, "layer_types"},
      {!spec.rope.scaling.has_value() || CanHaveScaling(family, *spec.rope.scaling), "rope_scaling"},
      {has_rope || spec.rope.theta == family.rope_theta, "rope_theta"},
      {CanHaveWindowTheta(family, spec), "window_rope_theta"},
      {family.states_multipliers || spec.embedding_multiplier == 1, "embedding_multiplier"},
      {family.states_multipliers || spec.residual_multiplier == 1, "residual_multiplier"},
      {states_logits || spec.logit_multiplier == 1, "logit_multiplier"},
      {(family.score_scale != ScoreScale::kHeadDim) == (attention.scale > 0), "attention_scale"},
      {family.states_attention_softcap || attention.softcap == 0, "attention_softcap"},
      {family.states_logit_softcap || spec.logit_softcap == 0, "logit_softcap"},
  };
  for (const auto& [fits, field] : fields) {
    if (fits) continue;
    if (family.window_rope_theta_key == nullptr && absl::string_view(field) == "window_rope_theta") {
      return UsageError(absl::StrCat("model.window_rope_theta = ", spec.window_rope_theta,
                                     " must equal model.rope_theta = ", spec.rope.theta,
                                     " in models of the family ", spec.family));
    }
    if (absl::string_view(field) == "layer_types" && !fits_ropes &&
        family.no_positions != NoPositions::kNone) {
      return UsageError(absl::StrCat("model.layer_types does not fit the family ", spec.family,
                                     ", whose layers without a window have no rotary positions; write "
                                     "\"full_attention_nope\" for them"));
    }
    return UsageError(
        absl::StrCat("model.", field, " has a value that models of the family ", spec.family,
                     " cannot have, because their config.json cannot state it; remove the field "
                     "to use the family's value (trainctl models lists what each family has)"));
  }
  return absl::OkStatus();
}

// Every model that is trained can be exported, so its config.json must be able to describe it.
absl::Status CheckExpressible(const Architecture& spec) {
  const Family& family = *FindFamilyOf(spec);
  const Attention& attention = AttentionOf(spec);
  if (spec.family == "llama") {
    TRAINCTL_RETURN_IF_ERROR(CheckBiasesOfLlama(spec));
  } else if (!CanHaveBiases(family, spec)) {
    return UsageError(absl::StrCat("model.qkv_bias = ", attention.qkv_bias ? "true" : "false",
                                   ", model.attention_out_bias = ", attention.out_bias ? "true" : "false",
                                   " and model.mlp_bias = ", MlpOf(spec).bias ? "true" : "false",
                                   " do not go together in models of the family ", spec.family));
  }
  TRAINCTL_RETURN_IF_ERROR(CheckStated(family, spec));
  if (!family.states_activation && MlpOf(spec).activation != family.activation) {
    return UsageError(absl::StrCat("model.activation = \"", NamesOf(MlpOf(spec).activation)[0],
                                   "\" must be \"", NamesOf(family.activation)[0],
                                   "\" in models of the family ", spec.family));
  }
  if (!family.has_head_dim && attention.head_dim * attention.heads != spec.hidden) {
    return UsageError(absl::StrCat("model.head_dim = ", attention.head_dim,
                                   " must be model.hidden / model.heads in models of the family ",
                                   spec.family));
  }
  if (!StatesRopeShare(family) && spec.rope.share != 1) {
    return UsageError(absl::StrCat("model.rope_share = ", spec.rope.share,
                                   " must be 1 in models of the family ", spec.family));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTrainable(const Architecture& spec) {
  TRAINCTL_RETURN_IF_ERROR(Validate(spec));
  if (const std::vector<std::string> reasons = WhyNotTrainable(spec); !reasons.empty()) {
    return UsageError(absl::StrCat("this version cannot train the model: ", absl::StrJoin(reasons, "; ")));
  }
  const Attention& attention = AttentionOf(spec);
  if (HasRope(spec) && (RotatedDim(spec) % 2 != 0 || RotatedDim(spec) == 0)) {
    const std::string rotated =
        spec.rope.share == 1 ? std::string("is odd")
                             : absl::StrCat("times model.rope_share = ", spec.rope.share, " is not even");
    return UsageError(absl::StrCat("model.head_dim = ", attention.head_dim, " ", rotated,
                                   ": rotary positions turn pairs of elements"));
  }
  return CheckExpressible(spec);
}

}  // namespace trainctl::model
