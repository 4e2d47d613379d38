#include "published/model_config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/names.h"
#include "base/status.h"
#include "model/config_json.h"

namespace trainctl::published {
namespace {

using model::Architecture;
using model::Attention;
using model::Experts;
using model::LatentAttention;
using model::Mlp;

constexpr int64_t kMostOfAnything = int64_t{1} << 40;
constexpr size_t kLongestName = 64;

// Parts of a model that its fields describe one by one.
struct Parts {
  Architecture& spec;
  std::optional<Experts> experts;
  int64_t dense_layers = 0;
  std::optional<LatentAttention> latent;

  template <typename T>
  static T& In(std::optional<T>& part) {
    return part.has_value() ? *part : part.emplace();
  }
};

struct Field {
  const char* name;
  const char* column;  // of the table, that has the same; "": none
  bool is_switch;
  void (*apply)(Parts& parts, int64_t value);
};

// Of the layers that have a window; of all if none has.
void SetWidthOfWindow(Architecture& spec, int64_t width) {
  const bool none_has = WindowOf(spec) == 0;
  for (model::Layer& kind : spec.kinds) {
    if (none_has || kind.attention.window > 0) kind.attention.window = width;
  }
}

// In the order in which they apply: what is counted in widths of an expert comes after that width. Spellings
// of one field are one line each.
constexpr Field kFields[] = {
    {"num_hidden_layers", "layers", false, [](Parts& p, int64_t v) { SetNumLayers(p.spec, v); }},
    {"hidden_size", "hidden", false, [](Parts& p, int64_t v) { p.spec.hidden = v; }},
    {"intermediate_size", "ffn", false, [](Parts& p, int64_t v) { SetEach(p.spec, &Mlp::ffn, v); }},
    {"num_attention_heads", "heads", false,
     [](Parts& p, int64_t v) { SetEach(p.spec, &Attention::heads, v); }},
    {"num_key_value_heads", "kv_heads", false,
     [](Parts& p, int64_t v) { SetEach(p.spec, &Attention::kv_heads, v); }},
    {"head_dim", "", false, [](Parts& p, int64_t v) { SetEach(p.spec, &Attention::head_dim, v); }},
    {"vocab_size", "vocab", false, [](Parts& p, int64_t v) { p.spec.vocab = v; }},
    {"tie_word_embeddings", "", true, [](Parts& p, int64_t v) { p.spec.tie_embeddings = v != 0; }},
    {"attention_bias", "", true,
     [](Parts& p, int64_t v) {
       SetEach(p.spec, &Attention::qkv_bias, v != 0);
       SetEach(p.spec, &Attention::out_bias, v != 0);
     }},
    {"qkv_bias", "", true, [](Parts& p, int64_t v) { SetEach(p.spec, &Attention::qkv_bias, v != 0); }},
    {"mlp_bias", "", true, [](Parts& p, int64_t v) { SetEach(p.spec, &Mlp::bias, v != 0); }},
    {"sliding_window", "", false, [](Parts& p, int64_t v) { SetWidthOfWindow(p.spec, v); }},
    {"num_nextn_predict_layers", "", false, [](Parts& p, int64_t v) { p.spec.mtp_layers = v; }},
    {"n_routed_experts", "", false, [](Parts& p, int64_t v) { p.In(p.experts).num_experts = v; }},
    {"num_local_experts", "", false, [](Parts& p, int64_t v) { p.In(p.experts).num_experts = v; }},
    {"num_experts", "", false, [](Parts& p, int64_t v) { p.In(p.experts).num_experts = v; }},
    {"num_experts_per_tok", "", false, [](Parts& p, int64_t v) { p.In(p.experts).top_k = v; }},
    {"moe_intermediate_size", "", false, [](Parts& p, int64_t v) { p.In(p.experts).ffn = v; }},
    {"n_shared_experts", "", false,
     [](Parts& p, int64_t v) {
       p.In(p.experts).shared_ffn = std::min<int64_t>(v, 1024) * p.In(p.experts).ffn;
     }},
    {"shared_expert_intermediate_size", "", false,
     [](Parts& p, int64_t v) { p.In(p.experts).shared_ffn = v; }},
    {"first_k_dense_replace", "", false,
     [](Parts& p, int64_t v) {
       p.In(p.experts);
       p.dense_layers = v;
     }},
    {"q_lora_rank", "", false, [](Parts& p, int64_t v) { p.In(p.latent).query_rank = v; }},
    {"kv_lora_rank", "", false, [](Parts& p, int64_t v) { p.In(p.latent).key_value_rank = v; }},
    {"qk_nope_head_dim", "", false, [](Parts& p, int64_t v) { p.In(p.latent).nope_dim = v; }},
    {"qk_rope_head_dim", "", false, [](Parts& p, int64_t v) { p.In(p.latent).rope_dim = v; }},
    {"v_head_dim", "", false,
     [](Parts& p, int64_t v) {
       p.In(p.latent).value_dim = v;
       SetEach(p.spec, &Attention::head_dim, v);
     }},
};

const Field* FindField(absl::string_view name) {
  for (const Field& field : kFields) {
    if (name == field.name) return &field;
  }
  return nullptr;
}

absl::StatusOr<int64_t> ValueOf(const Field& field, const Json& json) {
  if (field.is_switch && json.is_boolean()) return json.get<bool>() ? 1 : 0;
  const bool is_count = !field.is_switch && json.is_number_integer();
  if (is_count && json >= 0 && json <= kMostOfAnything) return json.get<int64_t>();
  return BadDataError(absl::StrCat(field.name, " is ", FormatAsciiJson(json).substr(0, kLongestName),
                                   " but must be ", field.is_switch ? "true or false" : "a whole number"));
}

}  // namespace

void ModelConfig::Apply(Architecture& spec) const {
  if (whole.has_value()) {
    spec = *whole;
    return;
  }
  Parts parts = {.spec = spec, .latent = AttentionOf(spec).latent};
  if (const Experts* experts = FindExperts(spec); experts != nullptr) {
    parts.experts = *experts;
    parts.dense_layers = NumDenseLayers(spec);
  }
  for (const Field& field : kFields) {
    for (const auto& [name, value] : fields) {
      if (name == field.name) field.apply(parts, value);
    }
  }
  SetEach(spec, &Attention::latent, parts.latent);
  SetExperts(spec, parts.experts, parts.dense_layers);
}

std::optional<int64_t> ModelConfig::SizeOf(absl::string_view column) const {
  if (whole.has_value()) {
    const std::pair<absl::string_view, int64_t> sizes[] = {{"layers", NumLayers(*whole)},
                                                           {"hidden", whole->hidden},
                                                           {"heads", AttentionOf(*whole).heads},
                                                           {"kv_heads", AttentionOf(*whole).kv_heads},
                                                           {"vocab", whole->vocab}};
    for (const auto& [name, size] : sizes) {
      if (name == column) return size;
    }
    // Tables of mixtures give the width of an MLP or of an expert.
    if (column == "ffn" && FindExperts(*whole) == nullptr) return MlpOf(*whole).ffn;
    return std::nullopt;
  }
  for (const auto& [name, value] : fields) {
    if (column == FindField(name)->column) return value;
  }
  return std::nullopt;
}

bool ModelConfig::StatesHeadDim() const {
  return std::any_of(fields.begin(), fields.end(), [](const auto& field) {
    return field.first == "head_dim" || field.first == "v_head_dim";
  });
}

absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view json_text) {
  TRAINCTL_ASSIGN_OR_RETURN(const Json json, ParseJson(json_text, "its JSON"));
  if (!json.is_object()) return BadDataError("must be a JSON object");
  ModelConfig config;
  if (json.contains("model_type")) {
    TRAINCTL_ASSIGN_OR_RETURN(model::ConfigModel read, model::ReadConfigJson(json_text, "its config.json"));
    config.whole = std::move(read.spec);
    return config;
  }
  for (const auto& [name, value] : json.items()) {
    const Field* const field = FindField(name);
    if (field == nullptr) {
      return BadDataError(
          absl::StrCat(QuotedName(name), " is not a field that a model may differ in; nearest: ",
                       NearestNames(absl::string_view(name).substr(0, kLongestName), ModelConfigFields()),
                       ". A whole config.json has a model_type"));
    }
    TRAINCTL_ASSIGN_OR_RETURN(const int64_t number, ValueOf(*field, value));
    config.fields.emplace_back(name, number);
  }
  return config;
}

std::vector<std::string> ModelConfigFields() {
  std::vector<std::string> names;
  for (const Field& field : kFields) names.emplace_back(field.name);
  return names;
}

}  // namespace trainctl::published
