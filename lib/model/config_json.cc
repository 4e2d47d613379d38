#include "model/config_json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/json.h"
#include "base/status.h"
#include "model/config_reader.h"
#include "model/config_rope.h"
#include "model/families.h"
#include "model/neutral_fields.h"

namespace trainctl::model {
namespace {

int64_t ReadKvHeads(ConfigReader& reader, const Family& family, int64_t heads) {
  const int64_t stated = reader.Int({family.kv_heads_key}, heads);
  if (!family.has_multi_query) return stated;
  // transformers stores the number in any case, but does not always use it.
  const bool has_multi_query = reader.Bool("multi_query", true);
  if (family.grouped_query_key != nullptr && reader.Bool(family.grouped_query_key, false)) return stated;
  return has_multi_query ? 1 : heads;
}

// Returns the number of layers that the file states. Gives `spec` at least `least_layers` layers, but no more
// than SetNumLayers allows.
int64_t ReadSizes(ConfigReader& reader, const Family& family, int64_t least_layers, Architecture& spec) {
  const int64_t layers = reader.Required({"num_hidden_layers", "n_layer", "n_layers", "num_layers"});
  SetNumLayers(spec, std::max(layers, least_layers));
  spec.hidden = reader.Required({"hidden_size", "n_embd", "n_embed", "d_model"});
  Layer& layer = spec.kinds[0];  // all are alike so far
  Attention& attention = layer.attention;
  attention.heads = reader.Required({"num_attention_heads", "n_head", "n_heads"});
  attention.kv_heads = ReadKvHeads(reader, family, attention.heads);
  spec.vocab = reader.Required({"vocab_size"});
  int64_t usual_ffn = family.ffn;
  if (family.has_usual_ffn) {
    usual_ffn = std::min<int64_t>(reader.Int({"expansion_ratio"}, 4), 1 << 20) * spec.hidden;
  }
  layer.mlp.ffn = reader.Int({family.ffn_key, "intermediate_size", "n_inner", "ffn_dim"}, usual_ffn);
  if (reader.Find({"head_dim"}) != nullptr) {
    attention.head_dim = reader.Required({"head_dim"});
  } else if (family.head_dim > 0) {
    // With null, some classes take hidden size / heads, and others their default.
    if (reader.FindWithNull("head_dim") != nullptr) reader.Fail("head_dim", "a whole number of at least 1");
    attention.head_dim = family.head_dim;
  } else if (attention.heads > 0 && family.mixture != Mixture::kLatent) {
    if (spec.hidden % attention.heads != 0) {
      reader.Fail("num_attention_heads", "a divisor of hidden_size, since head_dim is not given");
    }
    attention.head_dim = spec.hidden / attention.heads;
  }
  return layers;
}

void ReadBiases(ConfigReader& reader, const Family& family, Layer& layer) {
  Attention& attention = layer.attention;
  switch (family.bias) {
    case Bias::kNone:
      return;
    case Bias::kQkv:
      if (family.qkv_bias_key != nullptr) {
        attention.qkv_bias = reader.Bool(family.qkv_bias_key, false);
      } else {
        attention.qkv_bias = IsTrained(family) || reader.Bool("qkv_bias", true);
      }
      return;
    case Bias::kAll:
      layer.mlp.bias = true;
      attention.qkv_bias = attention.out_bias = reader.Bool("attention_bias", true);
      return;
    case Bias::kByFile:
      attention.qkv_bias = attention.out_bias = reader.Bool("attention_bias", false);
      layer.mlp.bias = reader.Bool("mlp_bias", false);
      return;
    case Bias::kAttentionByFile:
      attention.qkv_bias = attention.out_bias = reader.Bool(family.attention_bias_key, family.bias_default);
      return;
    case Bias::kMlp:
      layer.mlp.bias = true;
      return;
    case Bias::kUseBias:
      layer.mlp.bias = reader.Bool(family.use_bias_key, family.bias_default);
      if (reader.Find({"no_bias"}) != nullptr) layer.mlp.bias = !reader.Bool("no_bias", true);
      attention.qkv_bias = attention.out_bias = layer.mlp.bias;
      return;
  }
}

void ReadLatentAttention(ConfigReader& reader, Attention& attention) {
  LatentAttention& latent = attention.latent.emplace();
  latent.query_rank = reader.Int({"q_lora_rank"}, 0);
  latent.key_value_rank = reader.Required({"kv_lora_rank"});
  latent.nope_dim = reader.Required({"qk_nope_head_dim"});
  latent.rope_dim = reader.Required({"qk_rope_head_dim"});
  latent.value_dim = reader.Required({"v_head_dim"});
  attention.head_dim = latent.value_dim;
}

// Experts in every layer but some leading ones, whatever the family calls them.
void ReadExperts(ConfigReader& reader, const Family& family, Architecture& spec) {
  Experts e = {.bias = family.expert_bias, .gated_shared = family.gated_shared_experts};
  e.num_experts = reader.Int({"n_routed_experts", "num_local_experts", "num_experts"}, 0);
  if (e.num_experts == 0) return;  // a dense member of the family
  e.top_k = reader.Required({"num_experts_per_tok", "experts_per_token"});
  e.ffn = reader.Int({"moe_intermediate_size"}, MlpOf(spec).ffn);
  const int64_t shared = reader.Int({"n_shared_experts"}, 0);
  e.shared_ffn = reader.Int({"shared_expert_intermediate_size"}, std::min<int64_t>(shared, 1024) * e.ffn);
  int64_t dense_layers = reader.Int({"first_k_dense_replace"}, 0);
  for (const char* key : {"moe_layer_freq", "decoder_sparse_step"}) {
    const Json* step = reader.Find({key});
    if (step != nullptr && *step != 1) {
      reader.Fail(key, "1: no other pattern of layers with and without experts is priced");
    }
  }
  if (const Json* dense = reader.Find({"mlp_only_layers"}); dense != nullptr) {
    for (const Json& layer : *dense) {
      if (layer != dense_layers) {
        reader.Fail("mlp_only_layers", "the leading layers 0, 1, 2 and so on");
        break;
      }
      ++dense_layers;
    }
  }
  if (dense_layers < 0 || dense_layers > NumLayers(spec)) {
    reader.Fail("first_k_dense_replace", "at most the number of layers");
  }
  spec.mtp_layers = reader.Int({"num_nextn_predict_layers"}, 0);
  SetExperts(spec, e, dense_layers);
}

// Returns, for each layer, whether it has a window according to the family's rule.
std::vector<bool> UsuallyWindowed(ConfigReader& reader, const Family& family, int64_t layers) {
  std::vector<bool> has_window(static_cast<size_t>(layers));
  const auto set = [&](auto rule) {
    for (size_t i = 0; i < has_window.size(); ++i) has_window[i] = rule(i);
    return has_window;
  };
  const auto all_but_every = [&](size_t period) {
    return set([period](size_t i) { return (i + 1) % period != 0; });
  };
  switch (family.windows) {
    case Windows::kNone:
      return has_window;
    case Windows::kAll:
    case Windows::kListed:
      return set([](size_t) { return true; });
    case Windows::kEverySecond:
      return all_but_every(2);
    case Windows::kPattern:
      return all_but_every(static_cast<size_t>(
          std::max<int64_t>(1, reader.Int({"sliding_window_pattern"}, family.window_period))));
    case Windows::kUpper: {
      const auto first = static_cast<size_t>(reader.Int({"max_window_layers"}, 28));
      return set([first](size_t i) { return i >= first; });
    }
  }
  return has_window;
}

// Refuses a field that is not a list with one of `allowed` for each layer.
void RefuseOtherEntries(ConfigReader& reader, const char* key, std::initializer_list<Json> allowed,
                        int64_t layers) {
  const Json* list = reader.Find({key});
  if (list == nullptr) return;
  const auto is_allowed = [&](const Json& entry) {
    return std::find(allowed.begin(), allowed.end(), entry) != allowed.end();
  };
  if (list->is_array() && static_cast<int64_t>(list->size()) == layers &&
      std::all_of(list->begin(), list->end(), is_allowed)) {
    return;
  }
  const std::string entries = absl::StrJoin(
      allowed, " or ", [](std::string* out, const Json& value) { out->append(FormatJson(value)); });
  reader.Refuse(key, absl::StrCat("a list with ", entries, " for each of the ", layers,
                                  " layers (nothing else is implemented)"));
}

// Returns, for each layer, whether it has a window. If the file has `layer_types`, they determine the first
// `stated` layers, except in families in which all layers have one: those ignore `layer_types`. The family's
// rule determines all other layers.
std::vector<bool> WindowedLayers(ConfigReader& reader, const Family& family, int64_t stated, int64_t layers) {
  const Json* types = reader.Find({"layer_types"});
  const bool has_types =
      family.windows != Windows::kAll && types != nullptr && types->is_array() && !types->empty();
  if (has_types) stated = std::min(stated, layers);
  std::vector<bool> has_window(static_cast<size_t>(layers));
  if (!has_types || stated < layers) has_window = UsuallyWindowed(reader, family, layers);
  for (size_t i = 0; has_types && i < static_cast<size_t>(stated); ++i)
    has_window[i] = (*types)[i % types->size()] == "sliding_attention";
  return has_window;
}

void ReadWindow(ConfigReader& reader, const Family& family, int64_t stated_layers, Architecture& spec) {
  const Windows windows = family.windows;
  if (windows == Windows::kNone) return;
  const int64_t window = reader.Int({"sliding_window"}, reader.Has("sliding_window") ? 0 : family.window);
  if (!reader.Bool("use_sliding_window", windows != Windows::kUpper)) return;
  const std::vector<bool> has_window = WindowedLayers(reader, family, stated_layers, NumLayers(spec));
  if (windows != Windows::kAll)
    RefuseOtherEntries(reader, "layer_types", {"full_attention", "sliding_attention"}, stated_layers);
  if (window > 0) SetWindows(spec, window, has_window);
  if (family.no_positions == NoPositions::kUnwindowed)
    SetRopes(spec, window > 0 ? has_window : std::vector<bool>(has_window.size()));
  if (family.no_positions == NoPositions::kUnwindowedIfAny && window > 0) SetRopes(spec, has_window);
}

// Reads the layers that have RoPE, in families that list them.
void ReadNoRopeLayers(ConfigReader& reader, const Family& family, int64_t stated_layers, Architecture& spec) {
  if (family.no_positions != NoPositions::kListed) return;
  RefuseOtherEntries(reader, "no_rope_layers", {0, 1}, stated_layers);
  const auto period = static_cast<size_t>(reader.Int({"no_rope_layer_interval"}, kNoRopeLayerInterval));
  const Json* listed = reader.Find({"no_rope_layers"});  // 1 for a layer with RoPE
  const bool has_list = listed != nullptr && listed->is_array() && !listed->empty();
  std::vector<bool> has_rope(spec.layers.size());
  for (size_t i = 0; i < has_rope.size(); ++i) {
    has_rope[i] = has_list ? (*listed)[i % listed->size()] == 1 : period == 0 || (i + 1) % period != 0;
  }
  SetRopes(spec, has_rope);
}

// Reads a cap of scores or logits. Null means that there is none.
double ReadSoftcap(ConfigReader& reader, const char* key, double fallback) {
  return reader.Number({key}, reader.Has(key) ? 0 : fallback);
}

void ReadMultipliers(ConfigReader& reader, const Family& family, Architecture& spec) {
  if (family.states_attention_softcap) {
    SetEach(spec, &Attention::softcap,
            ReadSoftcap(reader, "attn_logit_softcapping", family.attention_softcap));
  }
  if (family.states_logit_softcap) {
    spec.logit_softcap = ReadSoftcap(reader, "final_logit_softcapping", family.logit_softcap);
  }
  if (family.states_multipliers) {
    spec.embedding_multiplier = reader.Number({"embedding_multiplier"}, 1);
    spec.residual_multiplier = reader.Number({"residual_multiplier"}, 1);
    spec.logit_multiplier = 1 / reader.Positive({"logits_scaling"}, 1);
  }
  if (family.logit_multiplier_key != nullptr)
    spec.logit_multiplier = reader.Number({family.logit_multiplier_key}, family.logit_multiplier);
  switch (family.score_scale) {
    case ScoreScale::kHeadDim:
      return;
    case ScoreScale::kPreAttnScalar: {
      const double scalar = reader.Positive({"query_pre_attn_scalar"}, family.query_pre_attn_scalar);
      return SetEach(spec, &Attention::scale, 1 / std::sqrt(scalar));
    }
    case ScoreScale::kMultiplier:
      return SetEach(spec, &Attention::scale, reader.Number({"attention_multiplier"}, 1));
  }
}

// Reads the fields that determine no size. An absent field has its default from transformers.
void ReadMathematics(ConfigReader& reader, const Family& family, Architecture& spec) {
  SetMaxPosition(
      spec, reader.Position({"max_position_embeddings", "n_positions", "max_seq_len"}, family.max_position));
  spec.norm.eps = family.norm_eps;
  if (family.norm_eps_key != nullptr) {
    // The class of a trained family reads one of them.
    spec.norm.eps =
        IsTrained(family)
            ? reader.Number({family.norm_eps_key}, family.norm_eps)
            : reader.Number({family.norm_eps_key, "layer_norm_eps", "layer_norm_epsilon"}, family.norm_eps);
  }
  spec.init_std = reader.Number({family.init_std_key}, spec.init_std);
  ReadRope(reader, family, spec);
  ReadMultipliers(reader, family, spec);
}

// A hidden_act that the family's class does not read must not name another function than the one it computes.
void ReadActivation(ConfigReader& reader, const Family& family, Architecture& spec) {
  const Json* const unread = reader.Find({"hidden_act"});
  const Json* const stated = reader.Find({family.activation_key});
  const Json* const value = stated != nullptr ? stated : unread;
  if (value == nullptr) return;
  const std::string name = value->is_string() ? value->get<std::string>() : "";
  if (family.activation_alias != nullptr && name == family.activation_alias) return;
  const std::optional<kernels::Activation> activation = FindActivation(name);
  const bool takes_others = value == stated && family.states_activation;
  if (activation.has_value() && (takes_others || *activation == family.activation)) {
    return SetEach(spec, &Mlp::activation, *activation);
  }
  const std::string known = takes_others ? absl::StrCat("one of ", absl::StrJoin(ActivationNames(), ", "))
                                         : absl::StrCat("\"", NamesOf(family.activation)[0], "\"");
  reader.Refuse(value == stated ? family.activation_key : "hidden_act",
                absl::StrCat(known, " (nothing else is implemented)"));
}

// Refuses a list in which a layer does not attend to all tokens, in families without other layers.
void RefuseOtherLayers(ConfigReader& reader, const Family& family, int64_t stated_layers) {
  const Json* types = reader.Find({"layer_types"});
  if (family.windows != Windows::kNone && family.windows != Windows::kAll) return;
  const char* const name = family.full_attention_name;
  if (types == nullptr && name == nullptr) return;
  const auto is_full = [&](const Json& type) {
    return type == "full_attention" || (name != nullptr && type == name);
  };
  const bool has_all =
      types != nullptr && types->is_array() && types->size() == static_cast<size_t>(stated_layers);
  if (has_all && std::all_of(types->begin(), types->end(), is_full)) return;
  const auto must = [](const char* type) {
    return absl::StrCat("\"", type, "\" for each layer (nothing else is implemented)");
  };
  if (name == nullptr) return reader.Refuse("layer_types", must("full_attention"));
  reader.Fail("layer_types", must(name));
}

void RefuseOtherCode(ConfigReader& reader, const Family& family) {
  const Json* map = family.code_class != nullptr ? reader.Find({"auto_map"}) : nullptr;
  if (map == nullptr || !map->is_object() || !map->contains("AutoModelForCausalLM")) return;
  const Json& name = (*map)["AutoModelForCausalLM"];  // module.class
  if (name.is_string() && absl::EndsWith(name.get<std::string>(), absl::StrCat(".", family.code_class)))
    return;
  reader.Refuse("auto_map", absl::StrCat("one whose AutoModelForCausalLM is ", family.code_class));
}

// Whether the value of a field is the one that trainctl computes. A null pointer stands for an absent field.
// A null in the file is false where a class asks whether the field is true, and the default elsewhere.
bool IsComputed(const FixedField& field, const Json* value) {
  const bool asks_for_true = field.value != nullptr && absl::string_view(field.value) == "true";
  if (value == nullptr || (value->is_null() && !asks_for_true)) return !field.is_required;
  return field.value == nullptr || *value == ParseValidJson(field.value);
}

void RefuseOtherFixedFields(ConfigReader& reader, const Family& family) {
  for (const FixedField& field : family.fixed_fields) {
    if (IsComputed(field, reader.FindWithNull(field.key))) continue;
    const std::string must = absl::StrCat(field.value, " (nothing else is implemented)");
    field.is_required ? reader.Fail(field.key, must) : reader.Refuse(field.key, must);
  }
}

// Whether `architectures` names the class whose code published folders contain.
bool IsOfCode(const Family& family, const Json& architectures) {
  return family.code_class != nullptr && architectures == Json::array({family.code_class});
}

// Refuses values of fields for which the trainer's computation would differ from that of the family's class
// in transformers.
void RefuseOtherMathematics(ConfigReader& reader, const Family& family, int64_t stated_layers) {
  const std::string head = family.class_name;
  // The name if the model was saved without its head.
  const std::string base = absl::StrReplaceAll(head, {{"ForCausalLM", "Model"}, {"LMHeadModel", "Model"}});
  if (const Json* value = reader.Find({"architectures"});
      value != nullptr && *value != Json::array() && *value != Json::array({head}) &&
      *value != Json::array({base}) && !IsOfCode(family, *value)) {
    reader.Refuse("architectures",
                  absl::StrCat(FormatJson(Json::array({head})), " (nothing else is implemented)"));
  }
  reader.Only("qk_layernorm", false);
  if (family.windows != Windows::kUpper) reader.Only("use_sliding_window", false);
  const absl::string_view type = family.model_type;
  if (type == "qwen2") {
    // Queries, keys and values have biases in every Qwen2, and the output has none.
    reader.Only("qkv_bias", true);
    reader.Find({"attention_bias"});
  } else if (family.windows == Windows::kNone && reader.Find({"use_sliding_window"}) != nullptr) {
    reader.Find({"sliding_window"});  // the size of a window that is not used
  }
  if (family.windows == Windows::kPattern && reader.Find({"layer_types"}) != nullptr) {
    // The pattern that the list was made from.
    reader.Find({"sliding_window_pattern"});
    reader.Find({"_sliding_window_pattern"});
  }
  RefuseOtherLayers(reader, family, stated_layers);
  RefuseOtherCode(reader, family);
  RefuseOtherFixedFields(reader, family);
  reader.RefuseTheRest(IsNeutral);
}

}  // namespace

std::vector<std::string> ConfigModelTypes() {
  std::vector<std::string> names;
  for (const Family& family : Families()) names.emplace_back(family.model_type);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::vector<std::string> TrainedModelTypes() {
  std::vector<std::string> names;
  for (const Family& family : Families()) {
    if (IsTrained(family) && family.name == nullptr) names.emplace_back(family.model_type);
  }
  return names;
}

namespace {

// Whether a config.json states the fixed fields of a family.
bool StatesFixedFields(const Json& config, const Family& family) {
  return std::all_of(family.fixed_fields.begin(), family.fixed_fields.end(), [&](const FixedField& field) {
    const auto stated = config.find(field.key);
    return IsComputed(field, stated == config.end() ? nullptr : &*stated);
  });
}

// Returns null if the model_type is not known.
const Family* FindFamilyIn(const Json& config) {
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) return nullptr;
  const Family* found = nullptr;
  for (const Family& family : Families()) {
    if (*type != family.model_type) continue;
    if (family.name == nullptr || StatesFixedFields(config, family)) found = &family;
  }
  return found;
}

}  // namespace

absl::StatusOr<ConfigModel> ReadConfigJson(absl::string_view json_text, absl::string_view what,
                                           int64_t least_layers) {
  TRAINCTL_ASSIGN_OR_RETURN(const Json config, ParseJson(json_text, what));
  if (!config.is_object()) return BadDataError(absl::StrCat(what, ": must be a JSON object"));
  const Family* family = FindFamilyIn(config);
  ConfigReader reader(config, what, family != nullptr && (!IsTrained(*family) || family->has_other_keys));
  reader.Find({"model_type"});
  if (family == nullptr) {
    reader.Fail("model_type",
                absl::StrCat("one of ", absl::StrJoin(ConfigModelTypes(), ", "),
                             " (to be trained: ", absl::StrJoin(TrainedModelTypes(), ", "),
                             "; the others can be planned: trainctl plan RECIPE --as megatron-core)"));
    return reader.status();
  }
  ConfigModel model;
  model.model_type = family->model_type;
  Architecture& spec = model.spec;
  const bool is_llama = IsTrained(*family) && family->names == nullptr;
  spec.family = is_llama ? "llama" : NameOf(*family);
  Layer& layer = spec.kinds[0];  // all are alike until experts and windows are read
  ApplyFamily(*family, spec);
  if (family->qk_norm == QkNorm::kNone && reader.Bool("qk_layernorm", false))
    layer.attention.qk_norm = QkNorm::kHead;
  const int64_t layers = ReadSizes(reader, *family, least_layers, spec);
  ReadBiases(reader, *family, layer);
  spec.tie_embeddings = reader.Bool("tie_word_embeddings", family->tied_default);
  if (family->mixture == Mixture::kLatent) ReadLatentAttention(reader, layer.attention);
  if (family->mixture != Mixture::kNone) ReadExperts(reader, *family, spec);
  const bool has_mlp = FindExperts(spec) == nullptr || NumDenseLayers(spec) > 0;
  if (has_mlp && MlpOf(spec).ffn == 0) reader.Fail(family->ffn_key, "a whole number of at least 1");
  ReadWindow(reader, *family, layers, spec);
  ReadNoRopeLayers(reader, *family, layers, spec);
  if (model.model_type == "opt" && reader.Int({"word_embed_proj_dim"}, spec.hidden) != spec.hidden) {
    reader.Fail("word_embed_proj_dim", "equal to hidden_size");
  }
  ReadMathematics(reader, *family, spec);
  if (IsTrained(*family)) {
    ReadActivation(reader, *family, spec);
    RefuseOtherMathematics(reader, *family, layers);
    model.unknown_fields = reader.unknown_fields();
    for (const auto& [key, value] : config.items()) {
      if (IsDropout(key, value)) model.dropouts.push_back(absl::StrCat(key, " = ", FormatJson(value)));
    }
  }
  TRAINCTL_RETURN_IF_ERROR(reader.status());
  absl::Status valid = CheckNumLayers(layers);
  if (valid.ok()) valid = Validate(spec);
  if (!valid.ok()) return BadDataError(absl::StrCat(what, ": ", valid.message()));
  return model;
}

absl::StatusOr<Architecture> FromHuggingFaceConfig(absl::string_view json_text, absl::string_view what) {
  TRAINCTL_ASSIGN_OR_RETURN(const ConfigModel model, ReadConfigJson(json_text, what));
  if (!model.unknown_fields.empty()) {
    return BadDataError(absl::StrCat(what, ": ", absl::StrJoin(model.unknown_fields, "; ")));
  }
  const absl::Status trainable = CheckTrainable(model.spec);
  if (!trainable.ok()) return BadDataError(absl::StrCat(what, ": ", trainable.message()));
  return model.spec;
}

}  // namespace trainctl::model
