#include "model/model_spec.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "model/parameter_names.h"

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

constexpr int64_t kMostColumns = 1 << 20;
constexpr int64_t kMostInner = 1 << 22;
constexpr int64_t kMostRows = 1 << 26;  // of a table of positions
constexpr int64_t kMostHeadDim = 1 << 12;
constexpr double kMostParameters = 1e18;

absl::Status ValidateSizes(const ModelSpec& spec) {
  const LatentAttention latent = spec.latent.value_or(LatentAttention{});
  const Experts experts = spec.experts.value_or(Experts{});
  const bool has_mlp = !spec.experts.has_value() || experts.dense_layers > 0;
  const Size sizes[] = {
      {"layers", spec.layers, 1, 1 << 14},
      {"hidden", spec.hidden, 1, kMostColumns},
      {"heads", spec.heads, 1, 1 << 14},
      {"kv_heads", spec.kv_heads, 1, 1 << 14},
      {"head_dim", spec.head_dim, 1, kMostHeadDim},
      {"ffn", spec.ffn, has_mlp ? 1 : 0, kMostInner},
      {"vocab", spec.vocab, 1, 1 << 24},
      {"max_position", spec.max_position, 1, int64_t{1} << 31},
      {"learned_positions", spec.learned_positions, 0, kMostRows},
      {"sliding_window", spec.sliding_window, 0, int64_t{1} << 40},
      {"mtp_layers", spec.mtp_layers, 0, 1 << 14},
      {"latent.query_rank", latent.query_rank, 0, kMostColumns},
      {"latent.key_value_rank", latent.key_value_rank, 0, kMostColumns},
      {"latent.nope_dim", latent.nope_dim, 0, kMostHeadDim},
      {"latent.rope_dim", latent.rope_dim, 0, kMostHeadDim},
      {"latent.value_dim", latent.value_dim, 0, kMostHeadDim},
      {"experts.num_experts", experts.num_experts, spec.experts.has_value() ? 1 : 0, 1 << 16},
      {"experts.ffn", experts.ffn, spec.experts.has_value() ? 1 : 0, kMostColumns},
      {"experts.shared_ffn", experts.shared_ffn, 0, kMostInner},
      {"experts.dense_layers", experts.dense_layers, 0, 1 << 14},
  };
  for (const Size& size : sizes) {
    if (size.value < size.least || size.value > size.most) {
      return UsageError(absl::StrCat("model.", size.name, " = ", size.value, " is out of range: ", size.least,
                                     " to ", size.most));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateExperts(const Experts& experts) {
  if (experts.top_k >= 1 && experts.top_k <= experts.num_experts) return absl::OkStatus();
  return UsageError(absl::StrCat("a token visits ", experts.top_k, " of ", experts.num_experts, " experts"));
}

absl::Status ValidateRopeScaling(const RopeScaling& scaling) {
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
  return absl::OkStatus();
}

// Appends parameters block by block in the order of the flat buffers.
class InventoryBuilder {
 public:
  explicit InventoryBuilder(const ModelSpec& spec) : spec_(spec), names_(*FindParameterNames(spec.family)) {}

  // `tensor_dim` and `tensor_unit`: Megatron's cuts (Shoeybi et al. 2019, arXiv 1909.08053): products that
  // widen by rows, those that narrow by columns, attention by whole heads, the vocabulary by tokens.
  void Add(std::string name, std::vector<int64_t> shape, int block, Init init, int tensor_dim = -1,
           int64_t tensor_unit = 1) {
    Parameter parameter;
    parameter.name = std::move(name);
    parameter.numel = 1;
    for (int64_t extent : shape) parameter.numel *= extent;
    parameter.shape = std::move(shape);
    parameter.block = block;
    parameter.used_by = {block};
    parameter.init = init;
    parameter.init_std = init == Init::kNormal ? spec_.init_std : 0.0;
    parameter.tensor_dim = tensor_dim;
    parameter.tensor_unit = tensor_unit;
    parameters_.push_back(std::move(parameter));
  }

  void AddLayer(int layer) {
    const int block = layer + 1;
    const std::string prefix = absl::StrCat(names_.layers, layer, ".");
    const int64_t hidden = spec_.hidden;
    const int64_t q_rows = spec_.heads * spec_.head_dim;
    const int64_t kv_rows = spec_.kv_heads * spec_.head_dim;
    const auto weight = [&](const char* name, int64_t out, int64_t in, int tensor_dim, int64_t unit = 1) {
      Add(absl::StrCat(prefix, name, ".weight"), {out, in}, block, Init::kNormal, tensor_dim, unit);
    };
    const auto bias = [&](const char* name, int64_t out, int tensor_dim = -1, int64_t unit = 1) {
      Add(absl::StrCat(prefix, name, ".bias"), {out}, block, Init::kZeros, tensor_dim, unit);
    };
    Add(absl::StrCat(prefix, names_.attention_norm, ".weight"), {hidden}, block, Init::kOnes);
    weight(names_.query, q_rows, hidden, 0, spec_.head_dim);
    weight(names_.key, kv_rows, hidden, 0, spec_.head_dim);
    weight(names_.value, kv_rows, hidden, 0, spec_.head_dim);
    if (spec_.qkv_bias) {
      bias(names_.query, q_rows, 0, spec_.head_dim);
      bias(names_.key, kv_rows, 0, spec_.head_dim);
      bias(names_.value, kv_rows, 0, spec_.head_dim);
    }
    weight(names_.attention_output, hidden, q_rows, 1, spec_.head_dim);
    if (spec_.attention_out_bias) bias(names_.attention_output, hidden);
    Add(absl::StrCat(prefix, names_.mlp_norm, ".weight"), {hidden}, block, Init::kOnes);
    weight(names_.gate, spec_.ffn, hidden, 0);
    weight(names_.up, spec_.ffn, hidden, 0);
    if (spec_.mlp_bias) {
      bias(names_.gate, spec_.ffn, 0);
      bias(names_.up, spec_.ffn, 0);
    }
    weight(names_.down, hidden, spec_.ffn, 1);
    if (spec_.mlp_bias) bias(names_.down, hidden);
  }

  std::vector<Parameter> Build() && {
    const int head = HeadBlock(spec_);
    Add(absl::StrCat(names_.embedding, ".weight"), {spec_.vocab, spec_.hidden}, EmbeddingBlock(),
        Init::kNormal, 0);
    if (spec_.tie_embeddings) parameters_.back().used_by.push_back(head);
    for (int layer = 0; layer < spec_.layers; ++layer) AddLayer(layer);
    Add(absl::StrCat(names_.final_norm, ".weight"), {spec_.hidden}, head, Init::kOnes);
    if (!spec_.tie_embeddings) {
      Add(absl::StrCat(names_.head, ".weight"), {spec_.vocab, spec_.hidden}, head, Init::kNormal, 0);
    }
    return std::move(parameters_);
  }

 private:
  const ModelSpec& spec_;
  const ParameterNames& names_;
  std::vector<Parameter> parameters_;
};

}  // namespace

absl::Status Validate(const ModelSpec& spec) {
  TRAINCTL_RETURN_IF_ERROR(ValidateSizes(spec));
  if (spec.heads % spec.kv_heads != 0) {
    return UsageError(absl::StrCat("model.heads = ", spec.heads,
                                   " is not a multiple of model.kv_heads = ", spec.kv_heads,
                                   ": every key-value head serves the same number of query heads"));
  }
  if (spec.heads * spec.head_dim > (1 << 20)) {
    return UsageError(absl::StrCat("model.heads * model.head_dim = ", spec.heads * spec.head_dim,
                                   " is out of range: at most ", 1 << 20));
  }
  if (spec.experts.has_value()) TRAINCTL_RETURN_IF_ERROR(ValidateExperts(*spec.experts));
  if (!std::isfinite(spec.norm_eps) || spec.norm_eps <= 0) {
    return UsageError(absl::StrCat("model.norm_eps = ", spec.norm_eps, " must be a positive number"));
  }
  if (!std::isfinite(spec.rope_theta) || spec.rope_theta <= 0) {
    return UsageError(absl::StrCat("model.rope_theta = ", spec.rope_theta, " must be a positive number"));
  }
  if (!std::isfinite(spec.init_std) || spec.init_std < 0) {
    return UsageError(absl::StrCat("model.init_std = ", spec.init_std, " must be a number of at least 0"));
  }
  if (spec.rope_scaling.has_value()) TRAINCTL_RETURN_IF_ERROR(ValidateRopeScaling(*spec.rope_scaling));
  const auto of_first = static_cast<double>(ParametersOfLayer(spec, 0).total());
  const auto of_last = static_cast<double>(ParametersOfLayer(spec, spec.layers - 1).total());
  if (std::max(of_first, of_last) * static_cast<double>(spec.layers) > kMostParameters) {
    return UsageError(absl::StrCat("the model has more than ", kMostParameters, " parameters"));
  }
  return absl::OkStatus();
}

std::vector<std::string> WhyNotTrainable(const ModelSpec& spec) {
  std::vector<std::string> reasons;
  if (FindParameterNames(spec.family) == nullptr) {
    reasons.push_back(absl::StrCat("model.family = \"", spec.family, "\" (model_type), where only \"",
                                   absl::StrJoin(NamedFamilies(), "\" and \""), "\" is known"));
  }
  const std::pair<bool, const char*> features[] = {
      {spec.experts.has_value(), "routed experts (num_experts, num_local_experts or n_routed_experts)"},
      {spec.latent.has_value(), "multi-head latent attention (kv_lora_rank)"},
      {spec.mtp_layers > 0, "layers that predict further tokens (num_nextn_predict_layers)"},
      {!spec.gated_mlp, "an MLP without a gate"},
      {spec.clamped_gate, "a clamped gate (swiglu_limit)"},
      {spec.layer_norm, "LayerNorm"},
      {spec.qk_norm, "norms of queries and keys"},
      {spec.post_norms, "norms after attention and MLP"},
      {spec.dropout, "dropout"},
      {spec.learned_positions > 0, "learned positions"},
      {spec.yarn, "YaRN positions (rope_scaling)"},
      {spec.sliding_window > 0, "a sliding window (sliding_window)"},
  };
  for (const auto& [has, feature] : features) {
    if (has) reasons.emplace_back(feature);
  }
  return reasons;
}

absl::Status CheckTrainable(const ModelSpec& spec) {
  TRAINCTL_RETURN_IF_ERROR(Validate(spec));
  if (const std::vector<std::string> reasons = WhyNotTrainable(spec); !reasons.empty()) {
    return UsageError(absl::StrCat("this version cannot train the model: ", absl::StrJoin(reasons, "; ")));
  }
  if (spec.head_dim % 2 != 0) {
    return UsageError(
        absl::StrCat("model.head_dim = ", spec.head_dim, " is odd: rotary positions turn pairs of elements"));
  }
  // Only what a Hugging Face folder can express: Llama has one switch for all four attention biases, Qwen2
  // has biases on q, k, v alone.
  if (spec.attention_out_bias && !spec.qkv_bias) {
    return UsageError(
        "model.attention_out_bias = true needs model.qkv_bias = true: no Hugging Face architecture of this "
        "family has a bias on the attention output alone");
  }
  if (spec.qkv_bias && !spec.attention_out_bias && spec.mlp_bias) {
    return UsageError(
        "model.qkv_bias with model.mlp_bias needs model.attention_out_bias = true as well: no Hugging Face "
        "architecture of this family has the first two alone");
  }
  return absl::OkStatus();
}

TensorShare ShareOf(const Parameter& parameter, int64_t index, int64_t ranks) {
  const int64_t extent = parameter.shape[static_cast<size_t>(parameter.tensor_dim)];
  const int64_t unit = parameter.tensor_unit;
  TRAINCTL_CHECK_MSG(unit >= 1 && extent % unit == 0, parameter.name, ": dimension ", parameter.tensor_dim,
                     " of ", extent, " is not whole units of ", unit);
  const int64_t units = extent / unit;
  const int64_t copies = units < ranks && ranks % units == 0 ? ranks / units : 1;
  const int64_t part = index / copies, parts = ranks / copies;
  const int64_t each = units / parts, one_more = units % parts;
  return {(part * each + std::min(part, one_more)) * unit, (each + (part < one_more ? 1 : 0)) * unit, copies};
}

std::vector<Parameter> Inventory(const ModelSpec& spec) {
  TRAINCTL_CHECK(WhyNotTrainable(spec).empty());
  return InventoryBuilder(spec).Build();
}

}  // namespace trainctl::model
