#include "model/config_json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/json.h"
#include "base/status.h"
#include "model/families.h"
#include "model/neutral_fields.h"

namespace trainctl::model {
namespace {

// A whole number, also if it is written as 512.0.
std::optional<int64_t> WholeNumber(const Json& value) {
  constexpr double kMost = double{int64_t{1} << 53};  // every whole number below has a double of its own
  if (value.is_number_unsigned() && value > INT64_MAX) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  if (!(number >= -kMost && number <= kMost) || std::trunc(number) != number) return std::nullopt;
  return static_cast<int64_t>(number);
}

// Reads one object. Keeps the first error in the model's description as the status. Collects separately the
// errors that matter only for training, and the names of the fields that were read.
class Reader {
 public:
  // `all_spellings` is whether to accept every name of a field instead of only the first.
  Reader(const Json& object, absl::string_view what, bool all_spellings)
      : object_(object), what_(what), all_spellings_(all_spellings) {}

  // The first of `keys` that is there and not null (transformers takes null as the default).
  const Json* Find(std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      const auto it = object_.find(key);
      if (it != object_.end()) seen_.insert(key);
      if (it != object_.end() && !it->is_null()) return &*it;
      if (!all_spellings_) break;
    }
    return nullptr;
  }

  // Whether the field is there, null or not.
  bool Has(const char* key) const { return object_.contains(key); }

  int64_t Int(std::initializer_list<const char*> keys, int64_t fallback) {
    const Json* value = Find(keys);
    if (value == nullptr) return fallback;
    const std::optional<int64_t> number = WholeNumber(*value);
    if (number.has_value() && *number >= 0 && *number <= (int64_t{1} << 40)) return *number;
    Fail(NameOf(keys), "a whole number");
    return fallback;
  }

  int64_t Required(std::initializer_list<const char*> keys) {
    const int64_t value = Int(keys, 0);
    if (value < 1) Fail(NameOf(keys), "a whole number of at least 1");
    return value;
  }

  bool Bool(const char* key, bool fallback) {
    const Json* value = Find({key});
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) Fail(key, "true or false");
    return value->is_boolean() ? value->get<bool>() : fallback;
  }

  void Fail(absl::string_view key, absl::string_view must) {
    if (status_.ok()) status_ = BadDataError(absl::StrCat(what_, ": ", Wrong(key, must)));
  }

  // The functions below report errors that matter only for training.

  double Number(std::initializer_list<const char*> keys, double fallback) {
    const Json* value = Find(keys);
    if (value == nullptr) return fallback;
    if (!value->is_number()) Refuse(NameOf(keys), "a number");
    return value->is_number() ? value->get<double>() : fallback;
  }

  double Positive(std::initializer_list<const char*> keys, double fallback) {
    const double value = Number(keys, fallback);
    if (value > 0) return value;
    Refuse(NameOf(keys), "a positive number");
    return fallback;
  }

  int64_t Position(std::initializer_list<const char*> keys, int64_t fallback) {
    const Json* value = Find(keys);
    if (value == nullptr) return fallback;
    const std::optional<int64_t> number = WholeNumber(*value);
    if (number.has_value() && *number >= 1 && *number <= kMostPositions) return *number;
    Refuse(NameOf(keys), absl::StrCat("a whole number from 1 to ", kMostPositions));
    return fallback;
  }

  // An optional field with one value that the trainer computes.
  void Only(const char* key, const Json& allowed) {
    const Json* value = Find({key});
    if (value != nullptr && *value != allowed) {
      Refuse(key, absl::StrCat(allowed.dump(), " (nothing else is implemented)"));
    }
  }

  void Refuse(absl::string_view key, absl::string_view must) { unknown_fields_.push_back(Wrong(key, must)); }
  void Refuse(std::string reason) { unknown_fields_.push_back(std::move(reason)); }

  // `is_neutral` says whether a field changes nothing with its value.
  void RefuseTheRest(bool (*is_neutral)(const std::string& key, const Json& value)) {
    for (const auto& [key, value] : object_.items()) {
      if (seen_.contains(key) || is_neutral(key, value)) continue;
      if (const std::string values = NeutralValuesOf(key); !values.empty()) {
        Refuse(key, absl::StrCat(values, " (nothing else is implemented)"));
        continue;
      }
      Refuse(absl::StrCat("field '", key,
                          "' is not known and may change what the model computes; remove it if it does not"));
    }
  }

  const absl::Status& status() const { return status_; }
  const std::vector<std::string>& unknown_fields() const { return unknown_fields_; }

 private:
  static constexpr int64_t kMostPositions = int64_t{1} << 31;

  std::string Wrong(absl::string_view key, absl::string_view must) const {
    const auto it = object_.find(std::string(key));
    const std::string value = it == object_.end()
                                  ? "absent"
                                  : it->dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80);
    return absl::StrCat("field '", key, "' is ", value, " but must be ", must);
  }

  // The spelling that the file uses, else the first.
  std::string NameOf(std::initializer_list<const char*> keys) const {
    for (const char* key : keys) {
      if (seen_.contains(key)) return key;
    }
    return *keys.begin();
  }

  const Json& object_;
  std::string what_;
  bool all_spellings_;
  absl::Status status_;
  std::vector<std::string> unknown_fields_;
  std::set<std::string> seen_;
};

int64_t ReadKvHeads(Reader& reader, const Family& family, int64_t heads) {
  const int64_t stated = reader.Int({family.kv_heads_key}, heads);
  if (!family.has_multi_query) return stated;
  // transformers stores the number in any case, but does not always use it.
  const bool has_multi_query = reader.Bool("multi_query", true);
  if (family.grouped_query_key != nullptr && reader.Bool(family.grouped_query_key, false)) return stated;
  return has_multi_query ? 1 : heads;
}

// Returns the number of layers that the file states. Gives `spec` at least `least_layers` layers, but no more
// than SetNumLayers allows.
int64_t ReadSizes(Reader& reader, const Family& family, int64_t least_layers, Architecture& spec) {
  const int64_t layers = reader.Required({"num_hidden_layers", "n_layer", "n_layers", "num_layers"});
  SetNumLayers(spec, std::max(layers, least_layers));
  spec.hidden = reader.Required({"hidden_size", "n_embd", "n_embed", "d_model"});
  Layer& layer = spec.kinds[0];  // all are alike so far
  Attention& attention = layer.attention;
  attention.heads = reader.Required({"num_attention_heads", "n_head", "n_heads"});
  attention.kv_heads = ReadKvHeads(reader, family, attention.heads);
  spec.vocab = reader.Required({"vocab_size"});
  int64_t usual_ffn = family.ffn;
  if (!family.gated) {
    usual_ffn = std::min<int64_t>(reader.Int({"expansion_ratio"}, 4), 1 << 20) * spec.hidden;
  }
  layer.mlp.ffn = reader.Int({family.ffn_key, "intermediate_size", "n_inner", "ffn_dim"}, usual_ffn);
  if (reader.Find({"head_dim"}) != nullptr) {
    attention.head_dim = reader.Required({"head_dim"});
  } else if (family.head_dim > 0) {
    attention.head_dim = family.head_dim;
  } else if (attention.heads > 0 && family.mixture != Mixture::kLatent) {
    if (spec.hidden % attention.heads != 0) {
      reader.Fail("num_attention_heads", "a divisor of hidden_size, since head_dim is not given");
    }
    attention.head_dim = spec.hidden / attention.heads;
  }
  return layers;
}

void ReadBiases(Reader& reader, const Family& family, Layer& layer) {
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
      layer.mlp.bias = reader.Bool("enable_bias", true);
      attention.qkv_bias = attention.out_bias = reader.Bool("attention_bias", layer.mlp.bias);
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

void ReadLatentAttention(Reader& reader, Attention& attention) {
  LatentAttention& latent = attention.latent.emplace();
  latent.query_rank = reader.Int({"q_lora_rank"}, 0);
  latent.key_value_rank = reader.Required({"kv_lora_rank"});
  latent.nope_dim = reader.Required({"qk_nope_head_dim"});
  latent.rope_dim = reader.Required({"qk_rope_head_dim"});
  latent.value_dim = reader.Required({"v_head_dim"});
  attention.head_dim = latent.value_dim;
}

// Experts in every layer but some leading ones, whatever the family calls them.
void ReadExperts(Reader& reader, const Family& family, Architecture& spec) {
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
std::vector<bool> UsuallyWindowed(Reader& reader, const Family& family, int64_t layers) {
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
void RefuseOtherEntries(Reader& reader, const char* key, std::initializer_list<Json> allowed,
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
  const std::string entries =
      absl::StrJoin(allowed, " or ", [](std::string* out, const Json& value) { out->append(value.dump()); });
  reader.Refuse(key, absl::StrCat("a list with ", entries, " for each of the ", layers,
                                  " layers (nothing else is implemented)"));
}

// Returns, for each layer, whether it has a window. If the file has `layer_types`, they determine the first
// `stated` layers, except in families in which all layers have one: those ignore `layer_types`. The family's
// rule determines all other layers.
std::vector<bool> WindowedLayers(Reader& reader, const Family& family, int64_t stated, int64_t layers) {
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

void ReadWindow(Reader& reader, const Family& family, int64_t stated_layers, Architecture& spec) {
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
void ReadNoRopeLayers(Reader& reader, const Family& family, int64_t stated_layers, Architecture& spec) {
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

// A family in which heads are always rotated as a whole ignores other fractions, so they are refused.
void ReadRopeShare(Reader& reader, const char* key, const Family& family, Architecture& spec) {
  if (!StatesRopeShare(family)) return reader.Only(key, 1.0);
  spec.rope.share = reader.Number({key}, spec.rope.share);
}

constexpr char kOriginal[] = "original_max_position_embeddings";

// Reads the context length of the model without scaling from a table. `outer` is the value outside of the
// table, which transformers prefers. Without either, transformers uses max_position_embeddings.
int64_t ReadOriginal(Reader& reader, std::optional<int64_t> outer, const Architecture& spec) {
  const int64_t original = reader.Position({kOriginal}, outer.value_or(spec.max_position));
  if (outer.has_value() && original != *outer)
    reader.Refuse(kOriginal, absl::StrCat("the same as outside of the table (", *outer, ")"));
  return original;
}

RopeScaling ReadLlama3(Reader& reader, std::optional<int64_t> outer, const Architecture& spec) {
  RopeScaling scaling;
  for (const auto& [key, value] : {std::pair{"factor", &scaling.factor},
                                   {"low_freq_factor", &scaling.low_freq_factor},
                                   {"high_freq_factor", &scaling.high_freq_factor}}) {
    if (reader.Find({key}) == nullptr) reader.Refuse(key, "a number");
    *value = reader.Number({key}, *value);
  }
  if (!outer.has_value() && reader.Find({kOriginal}) == nullptr) reader.Refuse(kOriginal, "a whole number");
  scaling.original_max_position = ReadOriginal(reader, outer, spec);
  return scaling;
}

// Linear scaling by 1 is none.
std::optional<RopeScaling> ReadLinear(Reader& reader) {
  const double factor = reader.Number({"factor"}, 0);
  if (factor <= 0) reader.Refuse("factor", "a positive number");
  if (factor <= 0 || factor == 1) return std::nullopt;
  return RopeScaling{.factor = factor, .kind = RopeScalingKind::kLinear};
}

// `mscale` and `mscale_all_dim` are another way to state the attention factor. transformers reads them only
// if both are there and not 0.
RopeScaling ReadYarn(Reader& reader, std::optional<int64_t> outer, const Architecture& spec) {
  RopeScaling scaling = {.kind = RopeScalingKind::kYarn};
  if (reader.Find({"factor"}) == nullptr) reader.Refuse("factor", "a number");
  scaling.factor = reader.Number({"factor"}, scaling.factor);
  scaling.original_max_position = ReadOriginal(reader, outer, spec);
  scaling.beta_fast = reader.Number({"beta_fast"}, scaling.beta_fast);
  scaling.beta_slow = reader.Number({"beta_slow"}, scaling.beta_slow);
  scaling.truncate = reader.Bool("truncate", scaling.truncate);
  const double mscale = reader.Number({"mscale"}, 0);
  const double mscale_all_dim = reader.Number({"mscale_all_dim"}, 0);
  if (reader.Find({"attention_factor"}) != nullptr) {
    scaling.attention_factor = reader.Positive({"attention_factor"}, 0);
  } else if (mscale != 0 && mscale_all_dim != 0) {
    const double growth = scaling.factor > 1 ? 0.1 * std::log(scaling.factor) : 0;
    scaling.attention_factor = (mscale * growth + 1) / (mscale_all_dim * growth + 1);
  }
  return scaling;
}

std::optional<std::vector<double>> ReadNumbers(Reader& reader, const char* key) {
  const Json* list = reader.Find({key});
  if (list != nullptr && list->is_array() &&
      std::all_of(list->begin(), list->end(), [](const Json& item) { return item.is_number(); })) {
    return list->get<std::vector<double>>();
  }
  reader.Refuse(key, "a list of numbers");
  return std::nullopt;
}

// Always states the attention factor, so that another max_position does not change what the weights compute.
std::optional<RopeScaling> ReadLongRope(Reader& reader, std::optional<int64_t> outer,
                                        const Architecture& spec) {
  RopeScaling scaling = {.kind = RopeScalingKind::kLongRope};
  scaling.original_max_position = ReadOriginal(reader, outer, spec);
  const double ratio =
      static_cast<double>(spec.max_position) / static_cast<double>(scaling.original_max_position);
  const double factor = reader.Positive({"factor"}, ratio);
  scaling.attention_factor =
      reader.Positive({"attention_factor"}, LongRopeAttentionFactor(factor, scaling.original_max_position));
  std::optional<std::vector<double>> short_factor = ReadNumbers(reader, "short_factor");
  std::optional<std::vector<double>> long_factor = ReadNumbers(reader, "long_factor");
  if (!short_factor.has_value() || !long_factor.has_value()) return std::nullopt;
  scaling.short_factor = *std::move(short_factor);
  scaling.long_factor = *std::move(long_factor);
  return scaling;
}

bool HasOnlyLongRope(const Family& family) { return family.original_max_position > 0; }

// Returns the name of a kind of scaling that transformers uses now. "su" and "yarn" are names that early
// versions of Phi 3 had for LongRoPE.
Json CurrentRopeType(const Family& family, const Json& type) {
  return HasOnlyLongRope(family) && (type == "su" || type == "yarn") ? Json("longrope") : type;
}

// Reads `rope_scaling`, or `rope_parameters` of newer transformers (which contains rope_theta as well).
// `outer` is original_max_position_embeddings outside of the table.
std::vector<std::string> ReadRopeTable(const Json& object, const Family& family, std::optional<int64_t> outer,
                                       Architecture& spec) {
  const char* const must = HasOnlyLongRope(family)
                               ? "\"longrope\" or \"default\""
                               : "\"llama3\", \"linear\", \"yarn\", \"longrope\" or \"default\"";
  if (!object.is_object()) return {"must be an object"};
  Reader reader(object, "", /*all_spellings=*/true);
  const Json* old_type = reader.Find({"type"});
  const Json* stated = reader.Find({"rope_type", "type"});
  if (stated == nullptr && object.contains("factor")) {
    reader.Refuse("rope_type", must);
    return reader.unknown_fields();
  }
  const Json type = stated == nullptr ? Json("default") : CurrentRopeType(family, *stated);
  if (old_type != nullptr && type != CurrentRopeType(family, *old_type))
    reader.Refuse("type", "equal to 'rope_type'");
  spec.rope.theta = reader.Number({"rope_theta"}, spec.rope.theta);
  ReadRopeShare(reader, "partial_rotary_factor", family, spec);
  const std::optional<RopeScalingKind> kind =
      type.is_string() ? FindRopeScalingKind(type.get<std::string>()) : std::nullopt;
  if (type == "default") {
    reader.Only("factor", 1.0);
  } else if (!kind.has_value() || (HasOnlyLongRope(family) && kind != RopeScalingKind::kLongRope)) {
    reader.Refuse(old_type == stated ? "type" : "rope_type",
                  absl::StrCat(must, " (no other scaling is implemented)"));
  } else if (kind == RopeScalingKind::kLlama3) {
    spec.rope.scaling = ReadLlama3(reader, outer, spec);
  } else if (kind == RopeScalingKind::kLinear) {
    spec.rope.scaling = ReadLinear(reader);
  } else if (kind == RopeScalingKind::kYarn) {
    spec.rope.scaling = ReadYarn(reader, outer, spec);
  } else {
    spec.rope.scaling = ReadLongRope(reader, outer, spec);
  }
  reader.RefuseTheRest([](const std::string&, const Json& value) { return value.is_null(); });
  return reader.unknown_fields();
}

// Reads `rope_parameters` of a family whose layers with a window have separate positions. The field then
// contains a table for each of the two layer types. Returns the table of the layers without a window, or null
// if the field is absent.
const Json* ReadTablesByLayerType(Reader& reader, const Family& family, Architecture& spec) {
  const Json* tables = reader.Find({"rope_parameters"});
  if (tables == nullptr || !tables->contains("sliding_attention")) return tables;
  constexpr char kWindowed[] = "rope_parameters: sliding_attention: ";
  Architecture windowed;
  windowed.rope.theta = spec.window_rope_theta;
  for (const std::string& reason :
       ReadRopeTable((*tables)["sliding_attention"], family, std::nullopt, windowed))
    reader.Refuse(absl::StrCat(kWindowed, reason));
  if (windowed.rope.scaling.has_value())
    reader.Refuse(absl::StrCat(kWindowed, "rope_type must be \"default\" (nothing else is implemented)"));
  spec.window_rope_theta = windowed.rope.theta;
  const auto full = tables->find("full_attention");
  return full == tables->end() ? nullptr : &*full;
}

void ReadRope(Reader& reader, const Family& family, Architecture& spec) {
  spec.rope.theta = reader.Number({family.rope_theta_key}, family.rope_theta);
  spec.rope.share = family.rope_share;
  ReadRopeShare(reader, family.rope_share_key, family, spec);
  const double outer_theta = spec.rope.theta;
  const bool has_two = family.window_rope_theta > 0;
  if (has_two) spec.window_rope_theta = reader.Number({"rope_local_base_freq"}, family.window_rope_theta);
  std::optional<int64_t> original;
  if (HasOnlyLongRope(family)) original = family.original_max_position;
  if (reader.Find({kOriginal}) != nullptr) original = reader.Position({kOriginal}, spec.max_position);
  std::optional<RopeScaling> first;
  for (const char* table : {"rope_scaling", "rope_parameters"}) {
    const bool is_by_type = has_two && absl::string_view(table) == "rope_parameters";
    const Json* object = is_by_type ? ReadTablesByLayerType(reader, family, spec) : reader.Find({table});
    if (object == nullptr) continue;
    const bool is_second = spec.rope.scaling.has_value() || first.has_value();
    first = std::exchange(spec.rope.scaling, std::nullopt);
    for (const std::string& reason : ReadRopeTable(*object, family, original, spec)) {
      reader.Refuse(absl::StrCat(table, ": ", reason));
    }
    if (is_second && first != spec.rope.scaling)
      reader.Refuse("rope_scaling", "the same as 'rope_parameters'");
  }
  if (reader.Find({family.rope_theta_key}) != nullptr && spec.rope.theta != outer_theta) {
    reader.Refuse(family.rope_theta_key,
                  absl::StrCat("the same as in the rope table (", spec.rope.theta, ")"));
  }
}

// Reads the number of rotated elements, of which config.json states the fraction in other families.
void ReadRotaryDim(Reader& reader, const Family& family, Architecture& spec) {
  spec.rope.theta = family.rope_theta;
  const int64_t head_dim = AttentionOf(spec).head_dim;
  const int64_t rotary_dim = reader.Int({family.rotary_dim_key}, family.rotary_dim);
  if (rotary_dim < 1 || rotary_dim > head_dim) {
    return reader.Refuse(family.rotary_dim_key,
                         absl::StrCat("a whole number from 1 to the size of a head (", head_dim, ")"));
  }
  spec.rope.share = static_cast<double>(rotary_dim) / static_cast<double>(head_dim);
  // The product with the size of a head may be slightly too small, and RotatedDim truncates it.
  if (RotatedDim(spec) < rotary_dim) spec.rope.share = std::nextafter(spec.rope.share, 1);
}

// Reads a cap of scores or logits. Null means that there is none.
double ReadSoftcap(Reader& reader, const char* key, double fallback) {
  return reader.Number({key}, reader.Has(key) ? 0 : fallback);
}

void ReadMultipliers(Reader& reader, const Family& family, Architecture& spec) {
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
void ReadMathematics(Reader& reader, const Family& family, Architecture& spec) {
  SetMaxPosition(
      spec, reader.Position({"max_position_embeddings", "n_positions", "max_seq_len"}, family.max_position));
  spec.norm.eps = family.norm_eps;
  if (family.norm_eps_key != nullptr) {
    spec.norm.eps =
        reader.Number({family.norm_eps_key, "layer_norm_eps", "layer_norm_epsilon"}, family.norm_eps);
  }
  spec.init_std = reader.Number({family.init_std_key}, spec.init_std);
  if (family.rotary_dim_key != nullptr) {
    ReadRotaryDim(reader, family, spec);
  } else {
    ReadRope(reader, family, spec);
  }
  ReadMultipliers(reader, family, spec);
}

void RefuseOtherActivations(Reader& reader, const Family& family) {
  const Json* other = reader.Find({"hidden_act"});
  const Json* stated = reader.Find({family.activation_key});
  const Json* value = stated != nullptr ? stated : other;
  if (value == nullptr) return;
  const absl::Span<const char* const> names = NamesOf(family.activation);
  const bool is_known =
      std::any_of(names.begin(), names.end(), [&](const char* name) { return *value == name; });
  if (is_known) return;
  reader.Refuse(value == stated ? family.activation_key : "hidden_act",
                absl::StrCat("\"", names[0], "\" (nothing else is implemented)"));
}

// Refuses a list in which a layer does not attend to all tokens, in families without other layers.
void RefuseOtherLayers(Reader& reader, const Family& family) {
  const Json* types = reader.Find({"layer_types"});
  if (family.windows != Windows::kNone && family.windows != Windows::kAll) return;
  const char* const name = family.full_attention_name;
  if (types == nullptr && name == nullptr) return;
  const auto is_full = [&](const Json& type) {
    return type == "full_attention" || (name != nullptr && type == name);
  };
  if (types != nullptr && types->is_array() && std::all_of(types->begin(), types->end(), is_full)) return;
  const auto must = [](const char* type) {
    return absl::StrCat("\"", type, "\" throughout (nothing else is implemented)");
  };
  if (name == nullptr) return reader.Refuse("layer_types", must("full_attention"));
  reader.Fail("layer_types", must(name));
}

void RefuseOtherCode(Reader& reader, const Family& family) {
  const Json* map = family.code_class != nullptr ? reader.Find({"auto_map"}) : nullptr;
  if (map == nullptr || !map->is_object() || !map->contains("AutoModelForCausalLM")) return;
  const Json& name = (*map)["AutoModelForCausalLM"];  // module.class
  if (name.is_string() && absl::EndsWith(name.get<std::string>(), absl::StrCat(".", family.code_class)))
    return;
  reader.Refuse("auto_map", absl::StrCat("one whose AutoModelForCausalLM is ", family.code_class));
}

void RefuseOtherFixedFields(Reader& reader, const Family& family) {
  for (const FixedField& field : family.fixed_fields) {
    const Json* value = reader.Find({field.key});
    if (field.value == nullptr || (value == nullptr && !field.is_required)) continue;
    if (value != nullptr && *value == Json::parse(field.value)) continue;
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
void RefuseOtherMathematics(Reader& reader, const Family& family) {
  const std::string head = family.class_name;
  // The name if the model was saved without its head.
  const std::string base = absl::StrReplaceAll(head, {{"ForCausalLM", "Model"}, {"LMHeadModel", "Model"}});
  if (const Json* value = reader.Find({"architectures"});
      value != nullptr && *value != Json::array() && *value != Json::array({head}) &&
      *value != Json::array({base}) && !IsOfCode(family, *value)) {
    reader.Refuse("architectures",
                  absl::StrCat(Json::array({head}).dump(), " (nothing else is implemented)"));
  }
  RefuseOtherActivations(reader, family);
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
  RefuseOtherLayers(reader, family);
  RefuseOtherCode(reader, family);
  RefuseOtherFixedFields(reader, family);
  reader.RefuseTheRest(IsNeutral);
}

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
    const bool is_absent = stated == config.end() || stated->is_null();
    return is_absent ? !field.is_required : field.value == nullptr || *stated == Json::parse(field.value);
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
  Reader reader(config, what, family != nullptr && (!IsTrained(*family) || family->has_other_keys));
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
  if (has_mlp && MlpOf(spec).ffn == 0) reader.Fail("intermediate_size", "a whole number of at least 1");
  ReadWindow(reader, *family, layers, spec);
  ReadNoRopeLayers(reader, *family, layers, spec);
  if (model.model_type == "opt" && reader.Int({"word_embed_proj_dim"}, spec.hidden) != spec.hidden) {
    reader.Fail("word_embed_proj_dim", "equal to hidden_size");
  }
  ReadMathematics(reader, *family, spec);
  if (IsTrained(*family)) {
    RefuseOtherMathematics(reader, *family);
    model.unknown_fields = reader.unknown_fields();
    for (const auto& [key, value] : config.items()) {
      if (IsDropout(key, value)) model.dropouts.push_back(absl::StrCat(key, " = ", value.dump()));
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

std::string ModelTypeOf(const Architecture& spec) { return FindFamilyOf(spec)->model_type; }

namespace {

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
    if (field.value != nullptr) config[field.key] = Json::parse(field.value);
  }
}

// Returns `rope_scaling`. Its fields with default values are absent, as in published files.
Json ScalingTable(const Architecture& spec, const RopeScaling& scaling) {
  const RopeScaling usual;
  Json table = {{"rope_type", NameOf(scaling.kind)}};
  if (scaling.kind == RopeScalingKind::kLongRope) {
    // Versions of transformers before 5 accept three fields of Phi 3, and require the name "type".
    table = {{"type", NameOf(scaling.kind)},
             {"short_factor", scaling.short_factor},
             {"long_factor", scaling.long_factor}};
    const double ratio =
        static_cast<double>(spec.max_position) / static_cast<double>(scaling.original_max_position);
    if (scaling.attention_factor != LongRopeAttentionFactor(ratio, scaling.original_max_position))
      table["attention_factor"] = scaling.attention_factor;
    return table;
  }
  table["factor"] = scaling.factor;
  if (scaling.kind == RopeScalingKind::kLinear) return table;
  table[kOriginal] = scaling.original_max_position;
  if (scaling.kind == RopeScalingKind::kLlama3) {
    table["low_freq_factor"] = scaling.low_freq_factor;
    table["high_freq_factor"] = scaling.high_freq_factor;
    return table;
  }
  if (scaling.beta_fast != usual.beta_fast) table["beta_fast"] = scaling.beta_fast;
  if (scaling.beta_slow != usual.beta_slow) table["beta_slow"] = scaling.beta_slow;
  if (!scaling.truncate) table["truncate"] = false;
  if (scaling.attention_factor > 0) table["attention_factor"] = scaling.attention_factor;
  return table;
}

void WriteRope(const Family& family, const Architecture& spec, Json& config) {
  if (family.learned_positions) return;
  const std::optional<RopeScaling>& scaling = spec.rope.scaling;
  config[family.rope_theta_key] = spec.rope.theta;
  config["rope_scaling"] = scaling.has_value() ? ScalingTable(spec, *scaling) : Json(nullptr);
  // Outside of the table, where all versions of transformers find it.
  if (scaling.has_value() && scaling->kind == RopeScalingKind::kLongRope)
    config[kOriginal] = scaling->original_max_position;
  if (StatesRopeShare(family)) config[family.rope_share_key] = spec.rope.share;
  if (family.window_rope_theta > 0) config["rope_local_base_freq"] = spec.window_rope_theta;
  if (family.no_positions != NoPositions::kListed) return;
  config["no_rope_layers"] = Json::array();
  for (int64_t i = 0; i < NumLayers(spec); ++i)
    config["no_rope_layers"].push_back(LayerAt(spec, i).attention.rope ? 1 : 0);
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
  if (family.rotary_dim_key != nullptr) {
    config[family.rotary_dim_key] = RotatedDim(spec);
  } else {
    WriteRope(family, spec, config);
  }
  WriteLayerTypes(family, spec, config);
  WriteFixedFields(family, config);
  WriteMultipliers(family, spec, config);
  WriteBiases(family, spec, config);
  config["hidden_act"] = NamesOf(family.activation)[0];
  config[family.activation_key] = config["hidden_act"];
  config[family.init_std_key] = spec.init_std;
  config["attention_dropout"] = 0.0;
  config["bos_token_id"] = JsonOfIds(tokens.bos);
  config["eos_token_id"] = JsonOfIds(tokens.eos);
  config["pad_token_id"] = JsonOfIds(tokens.pad);
  config["torch_dtype"] = TorchName(dtype);
  return config.dump(2) + "\n";
}

}  // namespace trainctl::model
