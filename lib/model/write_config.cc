// Writes a config.json.
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "model/config_json.h"
#include "model/config_rope.h"
#include "model/families.h"

namespace trainctl::model {
namespace {

Json JsonOfIds(const std::vector<int64_t>& ids) {
  if (ids.size() > 1) return ids;
  return ids.empty() ? Json(nullptr) : Json(ids[0]);
}

const char* TorchName(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "float64";
    case DType::kBF16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
    default:
      return "float32";
  }
}

void WriteBiases(const Family& family, const Architecture& spec, Json& config) {
  switch (family.bias) {
    case Bias::kNone:
    case Bias::kAll:
    case Bias::kMlp:
      return;
    case Bias::kQkv:
      if (family.qkv_bias_key != nullptr) config[family.qkv_bias_key] = AttentionOf(spec).qkv_bias;
      return;
    case Bias::kByFile:
      config["attention_bias"] = AttentionOf(spec).qkv_bias;
      config["mlp_bias"] = MlpOf(spec).bias;
      return;
    case Bias::kAttentionByFile:
      config[family.attention_bias_key] = AttentionOf(spec).qkv_bias;
      return;
    case Bias::kUseBias:
      config[family.use_bias_key] = MlpOf(spec).bias;
      return;
  }
}

void WriteLayerTypes(const Family& family, const Architecture& spec, Json& config) {
  if (family.full_attention_name != nullptr)
    config["layer_types"] = std::vector<std::string>(spec.layers.size(), family.full_attention_name);
  if (family.no_positions == NoPositions::kListed) {
    Json& has_rope = config["no_rope_layers"] = Json::array();
    for (int64_t i = 0; i < NumLayers(spec); ++i) has_rope.push_back(LayerAt(spec, i).attention.rope ? 1 : 0);
  }
  if (family.windows == Windows::kNone) return;
  const int64_t window = WindowOf(spec);
  if (family.windows == Windows::kUpper) config["use_sliding_window"] = window > 0;
  config["sliding_window"] = window > 0 ? Json(window) : Json(nullptr);
  if (family.windows == Windows::kAll) return;
  Json types = Json::array();
  for (int64_t i = 0; i < NumLayers(spec); ++i)
    types.push_back(LayerAt(spec, i).attention.window > 0 ? "sliding_attention" : "full_attention");
  config["layer_types"] = std::move(types);
}

void WriteFixedFields(const Family& family, Json& config) {
  for (const FixedField& field : family.fixed_fields) {
    if (field.value != nullptr) config[field.key] = ParseValidJson(field.value);
  }
}

// Returns a number that was computed from a field of config.json as that field most probably stated it.
Json AsStated(double value) {
  const double whole = std::round(value);
  if (std::abs(value - whole) > 1e-9 * std::abs(value) || std::abs(whole) > 1e15) return value;
  return static_cast<int64_t>(whole);
}

void WriteMultipliers(const Family& family, const Architecture& spec, Json& config) {
  const auto cap = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
  const Attention& attention = AttentionOf(spec);
  if (family.states_attention_softcap) config["attn_logit_softcapping"] = cap(attention.softcap);
  if (family.states_logit_softcap) config["final_logit_softcapping"] = cap(spec.logit_softcap);
  if (family.states_multipliers) {
    config["embedding_multiplier"] = spec.embedding_multiplier;
    config["residual_multiplier"] = spec.residual_multiplier;
    config["logits_scaling"] = AsStated(1 / spec.logit_multiplier);
  }
  if (family.logit_multiplier_key != nullptr) config[family.logit_multiplier_key] = spec.logit_multiplier;
  if (family.score_scale == ScoreScale::kMultiplier) config["attention_multiplier"] = attention.scale;
  if (family.score_scale == ScoreScale::kPreAttnScalar)
    config["query_pre_attn_scalar"] = AsStated(1 / (attention.scale * attention.scale));
}

}  // namespace

std::string ModelTypeOf(const Architecture& spec) { return FindFamilyOf(spec)->model_type; }

std::string ToHuggingFaceConfig(const Architecture& spec, DType dtype, const SpecialTokens& tokens) {
  const Family& family = *FindFamilyOf(spec);
  const Attention& attention = AttentionOf(spec);
  Json config = {
      {"architectures", Json::array({family.class_name})},
      {"model_type", family.model_type},
      {"hidden_size", spec.hidden},
      {family.ffn_key, MlpOf(spec).ffn},
      {"num_hidden_layers", NumLayers(spec)},
      {"num_attention_heads", attention.heads},
      {"vocab_size", spec.vocab},
      {"max_position_embeddings", spec.max_position},
  };
  if (family.norm_eps_key != nullptr) config[family.norm_eps_key] = spec.norm.eps;
  config["tie_word_embeddings"] = spec.tie_embeddings;
  if (family.has_kv_heads) config[family.kv_heads_key] = attention.kv_heads;
  if (family.grouped_query_key != nullptr) config[family.grouped_query_key] = true;
  if (family.has_multi_query) config["multi_query"] = attention.kv_heads == 1;
  if (family.has_head_dim) config["head_dim"] = attention.head_dim;
  WriteRope(family, spec, config);
  WriteLayerTypes(family, spec, config);
  WriteFixedFields(family, config);
  WriteMultipliers(family, spec, config);
  WriteBiases(family, spec, config);
  config["hidden_act"] = NamesOf(MlpOf(spec).activation)[0];
  config[family.activation_key] = config["hidden_act"];
  config[family.init_std_key] = spec.init_std;
  config["attention_dropout"] = 0.0;
  config["bos_token_id"] = JsonOfIds(tokens.bos);
  config["eos_token_id"] = JsonOfIds(tokens.eos);
  config["pad_token_id"] = JsonOfIds(tokens.pad);
  config["torch_dtype"] = TorchName(dtype);
  return FormatJson(config, 2) + "\n";
}

}  // namespace trainctl::model
