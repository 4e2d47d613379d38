#include "published/model_config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/names.h"
#include "base/status.h"
#include "model/config_json.h"

namespace trainctl::published {
namespace {

using model::Experts;
using model::LatentAttention;
using model::ModelSpec;

constexpr int64_t kMostOfAnything = int64_t{1} << 40;
constexpr size_t kLongestName = 64;

struct Field {
  const char* name;
  const char* column;  // of the table, that has the same; "": none
  bool is_switch;
  void (*apply)(ModelSpec& spec, int64_t value);
};

Experts& ExpertsOf(ModelSpec& spec) {
  if (!spec.experts.has_value()) spec.experts.emplace();
  return *spec.experts;
}
LatentAttention& LatentOf(ModelSpec& spec) {
  if (!spec.latent.has_value()) spec.latent.emplace();
  return *spec.latent;
}

// In the order in which they apply: what is counted in widths of an expert comes after that width. Spellings
// of one field are one line each.
constexpr Field kFields[] = {
    {"num_hidden_layers", "layers", false, [](ModelSpec& s, int64_t v) { s.layers = v; }},
    {"hidden_size", "hidden", false, [](ModelSpec& s, int64_t v) { s.hidden = v; }},
    {"intermediate_size", "ffn", false, [](ModelSpec& s, int64_t v) { s.ffn = v; }},
    {"num_attention_heads", "heads", false, [](ModelSpec& s, int64_t v) { s.heads = v; }},
    {"num_key_value_heads", "kv_heads", false, [](ModelSpec& s, int64_t v) { s.kv_heads = v; }},
    {"head_dim", "", false, [](ModelSpec& s, int64_t v) { s.head_dim = v; }},
    {"vocab_size", "vocab", false, [](ModelSpec& s, int64_t v) { s.vocab = v; }},
    {"tie_word_embeddings", "", true, [](ModelSpec& s, int64_t v) { s.tie_embeddings = v != 0; }},
    {"attention_bias", "", true, [](ModelSpec& s, int64_t v) { s.qkv_bias = s.attention_out_bias = v != 0; }},
    {"qkv_bias", "", true, [](ModelSpec& s, int64_t v) { s.qkv_bias = v != 0; }},
    {"mlp_bias", "", true, [](ModelSpec& s, int64_t v) { s.mlp_bias = v != 0; }},
    {"sliding_window", "", false, [](ModelSpec& s, int64_t v) { s.sliding_window = v; }},
    {"num_nextn_predict_layers", "", false, [](ModelSpec& s, int64_t v) { s.mtp_layers = v; }},
    {"n_routed_experts", "", false, [](ModelSpec& s, int64_t v) { ExpertsOf(s).num_experts = v; }},
    {"num_local_experts", "", false, [](ModelSpec& s, int64_t v) { ExpertsOf(s).num_experts = v; }},
    {"num_experts", "", false, [](ModelSpec& s, int64_t v) { ExpertsOf(s).num_experts = v; }},
    {"num_experts_per_tok", "", false, [](ModelSpec& s, int64_t v) { ExpertsOf(s).top_k = v; }},
    {"moe_intermediate_size", "", false, [](ModelSpec& s, int64_t v) { ExpertsOf(s).ffn = v; }},
    {"n_shared_experts", "", false,
     [](ModelSpec& s, int64_t v) {
       ExpertsOf(s).shared_ffn = std::min<int64_t>(v, 1024) * ExpertsOf(s).ffn;
     }},
    {"shared_expert_intermediate_size", "", false,
     [](ModelSpec& s, int64_t v) { ExpertsOf(s).shared_ffn = v; }},
    {"first_k_dense_replace", "", false, [](ModelSpec& s, int64_t v) { ExpertsOf(s).dense_layers = v; }},
    {"q_lora_rank", "", false, [](ModelSpec& s, int64_t v) { LatentOf(s).query_rank = v; }},
    {"kv_lora_rank", "", false, [](ModelSpec& s, int64_t v) { LatentOf(s).key_value_rank = v; }},
    {"qk_nope_head_dim", "", false, [](ModelSpec& s, int64_t v) { LatentOf(s).nope_dim = v; }},
    {"qk_rope_head_dim", "", false, [](ModelSpec& s, int64_t v) { LatentOf(s).rope_dim = v; }},
    {"v_head_dim", "", false, [](ModelSpec& s, int64_t v) { s.head_dim = LatentOf(s).value_dim = v; }},
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
  return BadDataError(absl::StrCat(
      field.name, " is ", json.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, kLongestName),
      " but must be ", field.is_switch ? "true or false" : "a whole number"));
}

}  // namespace

void ModelConfig::Apply(ModelSpec& spec) const {
  if (whole.has_value()) {
    spec = *whole;
    return;
  }
  for (const Field& field : kFields) {
    for (const auto& [name, value] : fields) {
      if (name == field.name) field.apply(spec, value);
    }
  }
}

std::optional<int64_t> ModelConfig::SizeOf(absl::string_view column) const {
  if (whole.has_value()) {
    const std::pair<absl::string_view, int64_t> sizes[] = {{"layers", whole->layers},
                                                           {"hidden", whole->hidden},
                                                           {"heads", whole->heads},
                                                           {"kv_heads", whole->kv_heads},
                                                           {"vocab", whole->vocab}};
    for (const auto& [name, size] : sizes) {
      if (name == column) return size;
    }
    // Tables of mixtures give the width of an MLP or of an expert.
    if (column == "ffn" && !whole->experts.has_value()) return whole->ffn;
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
