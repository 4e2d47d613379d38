#include "model/model_spec.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::model {
namespace {

// Limits that keep every product of dimensions below 2^62, and an inventory below some hundred
// thousand entries. The largest published dense model uses less than a tenth of each.
struct Dimension {
  const char* name;
  int64_t ModelSpec::*field;
  int64_t maximum;
};

constexpr Dimension kDimensions[] = {
    {"layers", &ModelSpec::layers, 1 << 14},     {"hidden", &ModelSpec::hidden, 1 << 20},
    {"heads", &ModelSpec::heads, 1 << 14},       {"kv_heads", &ModelSpec::kv_heads, 1 << 14},
    {"head_dim", &ModelSpec::head_dim, 1 << 12}, {"ffn", &ModelSpec::ffn, 1 << 22},
    {"vocab", &ModelSpec::vocab, 1 << 24},       {"max_position", &ModelSpec::max_position, int64_t{1} << 31},
};

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
  explicit InventoryBuilder(const ModelSpec& spec) : spec_(spec) {}

  void Add(std::string name, std::vector<int64_t> shape, int block, Init init) {
    Parameter parameter;
    parameter.name = std::move(name);
    parameter.numel = 1;
    for (int64_t extent : shape) parameter.numel *= extent;
    parameter.shape = std::move(shape);
    parameter.block = block;
    parameter.used_by = {block};
    parameter.init = init;
    parameter.init_std = init == Init::kNormal ? spec_.init_std : 0.0;
    parameters_.push_back(std::move(parameter));
  }

  void AddLayer(int layer) {
    const int block = layer + 1;
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    const int64_t hidden = spec_.hidden;
    const int64_t q_rows = spec_.heads * spec_.head_dim;
    const int64_t kv_rows = spec_.kv_heads * spec_.head_dim;
    const auto weight = [&](const char* name, int64_t out, int64_t in) {
      Add(absl::StrCat(prefix, name, ".weight"), {out, in}, block, Init::kNormal);
    };
    const auto bias = [&](const char* name, int64_t out) {
      Add(absl::StrCat(prefix, name, ".bias"), {out}, block, Init::kZeros);
    };
    Add(absl::StrCat(prefix, "input_layernorm.weight"), {hidden}, block, Init::kOnes);
    weight("self_attn.q_proj", q_rows, hidden);
    weight("self_attn.k_proj", kv_rows, hidden);
    weight("self_attn.v_proj", kv_rows, hidden);
    if (spec_.qkv_bias) {
      bias("self_attn.q_proj", q_rows);
      bias("self_attn.k_proj", kv_rows);
      bias("self_attn.v_proj", kv_rows);
    }
    weight("self_attn.o_proj", hidden, q_rows);
    if (spec_.attention_out_bias) bias("self_attn.o_proj", hidden);
    Add(absl::StrCat(prefix, "post_attention_layernorm.weight"), {hidden}, block, Init::kOnes);
    weight("mlp.gate_proj", spec_.ffn, hidden);
    weight("mlp.up_proj", spec_.ffn, hidden);
    if (spec_.mlp_bias) {
      bias("mlp.gate_proj", spec_.ffn);
      bias("mlp.up_proj", spec_.ffn);
    }
    weight("mlp.down_proj", hidden, spec_.ffn);
    if (spec_.mlp_bias) bias("mlp.down_proj", hidden);
  }

  std::vector<Parameter> Build() && {
    const int head = HeadBlock(spec_);
    Add("model.embed_tokens.weight", {spec_.vocab, spec_.hidden}, EmbeddingBlock(), Init::kNormal);
    if (spec_.tie_embeddings) parameters_.back().used_by.push_back(head);
    for (int layer = 0; layer < spec_.layers; ++layer) AddLayer(layer);
    Add("model.norm.weight", {spec_.hidden}, head, Init::kOnes);
    if (!spec_.tie_embeddings) {
      Add("lm_head.weight", {spec_.vocab, spec_.hidden}, head, Init::kNormal);
    }
    return std::move(parameters_);
  }

 private:
  const ModelSpec& spec_;
  std::vector<Parameter> parameters_;
};

}  // namespace

absl::Status Validate(const ModelSpec& spec) {
  if (spec.family != "llama") {
    return UsageError(
        absl::StrCat("model.family = \"", spec.family, "\" is not known; the known family is \"llama\""));
  }
  for (const Dimension& dimension : kDimensions) {
    const int64_t value = spec.*dimension.field;
    if (value < 1 || value > dimension.maximum) {
      return UsageError(
          absl::StrCat("model.", dimension.name, " = ", value, " is out of range: 1 to ", dimension.maximum));
    }
  }
  if (spec.heads % spec.kv_heads != 0) {
    return UsageError(absl::StrCat("model.heads = ", spec.heads,
                                   " is not a multiple of model.kv_heads = ", spec.kv_heads,
                                   ": every key-value head serves the same number of query heads"));
  }
  if (spec.head_dim % 2 != 0) {
    return UsageError(
        absl::StrCat("model.head_dim = ", spec.head_dim, " is odd: rotary positions turn pairs of elements"));
  }
  if (spec.heads * spec.head_dim > (1 << 20)) {
    return UsageError(absl::StrCat("model.heads * model.head_dim = ", spec.heads * spec.head_dim,
                                   " is out of range: at most ", 1 << 20));
  }
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
  // Only what a Hugging Face folder can express, since every model must be exportable: Llama has
  // one switch for all four attention biases, Qwen2 has biases on q, k, v alone.
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

std::vector<Parameter> Inventory(const ModelSpec& spec) { return InventoryBuilder(spec).Build(); }

int64_t NumParameters(const ModelSpec& spec) {
  const int64_t q_rows = spec.heads * spec.head_dim;
  const int64_t kv_rows = spec.kv_heads * spec.head_dim;
  int64_t layer = 2 * spec.hidden;                    // norms
  layer += (2 * q_rows + 2 * kv_rows) * spec.hidden;  // q, k, v, o
  layer += 3 * spec.ffn * spec.hidden;                // gate, up, down
  if (spec.qkv_bias) layer += q_rows + 2 * kv_rows;
  if (spec.attention_out_bias) layer += spec.hidden;
  if (spec.mlp_bias) layer += 2 * spec.ffn + spec.hidden;
  const int64_t num_vocab_matrices = spec.tie_embeddings ? 1 : 2;
  return spec.layers * layer + spec.hidden + num_vocab_matrices * spec.vocab * spec.hidden;
}

double FlopsPerToken(const ModelSpec& spec, int64_t seq_len) {
  const double hidden = static_cast<double>(spec.hidden);
  const double layers = static_cast<double>(spec.layers);
  const double q_rows = static_cast<double>(spec.heads * spec.head_dim);
  const double kv_rows = static_cast<double>(spec.kv_heads * spec.head_dim);
  const double layer_weights =
      hidden * (2 * q_rows + 2 * kv_rows) + 3 * hidden * static_cast<double>(spec.ffn);
  const double weights = layers * layer_weights + hidden * static_cast<double>(spec.vocab);
  // Forward 2 and backward 4 per weight. Scores and their product with the values: 4 s h forward,
  // three times that with the backward, halved by the causal mask.
  return 6 * weights + 6 * layers * q_rows * static_cast<double>(seq_len);
}

}  // namespace trainctl::model
