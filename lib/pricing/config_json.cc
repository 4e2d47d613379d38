#include "pricing/config_json.h"

#include <algorithm>
#include <initializer_list>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json.h"
#include "base/status.h"

namespace trainctl::pricing {
namespace {

enum class Mixture : uint8_t { kNone, kRouted, kLatent };  // kLatent: DeepSeek's attention and experts
enum class Bias : uint8_t {
  kNone,
  kQkv,     // of queries, keys and values
  kAll,     // of every linear layer
  kByFile,  // attention_bias and mlp_bias say it
  kUseBias  // use_bias, bias or no_bias says it for every linear layer; see `bias_default`
};

// Which layers attend within a sliding window (transformers, modeling_<family>.py): all; all but every n-th;
// every second; those from max_window_layers on, if use_sliding_window says so.
enum class Windows : uint8_t { kNone, kAll, kPattern, kEverySecond, kUpper };

// What a family has beyond the sizes in its file, from its modeling_*.py and configuration_*.py in
// huggingface/transformers.
struct Family {
  const char* model_type;
  bool gated = true;
  bool layer_norm = false;
  Bias bias = Bias::kNone;
  bool bias_default = false;  // where the file does not say
  bool tied_default = false;  // where the file does not say
  bool learned_positions = false;
  bool qk_norm = false;
  Windows windows = Windows::kNone;
  Mixture mixture = Mixture::kNone;
};

constexpr Family kFamilies[] = {
    {.model_type = "llama", .bias = Bias::kByFile},
    {.model_type = "mistral", .windows = Windows::kAll},
    {.model_type = "mixtral", .windows = Windows::kAll, .mixture = Mixture::kRouted},
    {.model_type = "qwen2", .bias = Bias::kQkv, .windows = Windows::kUpper},
    {.model_type = "qwen2_moe", .bias = Bias::kQkv, .windows = Windows::kUpper, .mixture = Mixture::kRouted},
    {.model_type = "qwen3", .bias = Bias::kByFile, .qk_norm = true, .windows = Windows::kUpper},
    {.model_type = "qwen3_moe",
     .bias = Bias::kByFile,
     .qk_norm = true,
     .windows = Windows::kUpper,
     .mixture = Mixture::kRouted},
    {.model_type = "deepseek_v2", .mixture = Mixture::kLatent},
    {.model_type = "deepseek_v3", .mixture = Mixture::kLatent},
    {.model_type = "kimi_k2", .mixture = Mixture::kLatent},
    {.model_type = "olmoe", .qk_norm = true, .mixture = Mixture::kRouted},
    {.model_type = "gpt_oss",
     .bias = Bias::kAll,
     .windows = Windows::kEverySecond,
     .mixture = Mixture::kRouted},
    {.model_type = "olmo2", .bias = Bias::kByFile, .qk_norm = true},
    {.model_type = "smollm3", .bias = Bias::kByFile, .tied_default = true},
    {.model_type = "granite", .bias = Bias::kByFile, .tied_default = true},
    {.model_type = "gemma", .tied_default = true},
    {.model_type = "gemma2", .tied_default = true, .windows = Windows::kEverySecond},
    {.model_type = "gemma3_text", .tied_default = true, .qk_norm = true, .windows = Windows::kPattern},
    {.model_type = "internlm2", .bias = Bias::kUseBias},
    {.model_type = "phi3", .windows = Windows::kAll},
    {.model_type = "phi", .gated = false, .layer_norm = true, .bias = Bias::kAll},
    {.model_type = "gpt2",
     .gated = false,
     .layer_norm = true,
     .bias = Bias::kAll,
     .tied_default = true,
     .learned_positions = true},
    {.model_type = "gpt_neox", .gated = false, .layer_norm = true, .bias = Bias::kAll},
    {.model_type = "opt",
     .gated = false,
     .layer_norm = true,
     .bias = Bias::kAll,
     .tied_default = true,
     .learned_positions = true},
    {.model_type = "bloom", .gated = false, .layer_norm = true, .bias = Bias::kAll, .tied_default = true},
    {.model_type = "mpt", .gated = false, .bias = Bias::kUseBias, .tied_default = true},
    {.model_type = "starcoder2",
     .gated = false,
     .layer_norm = true,
     .bias = Bias::kUseBias,
     .bias_default = true,
     .tied_default = true,
     .windows = Windows::kAll},
};

// Of one object; the first mistake sticks.
class Reader {
 public:
  Reader(const Json& object, absl::string_view what) : object_(object), what_(what) {}

  // The first of `keys` that is there and not null.
  const Json* Find(std::initializer_list<const char*> keys) const {
    for (const char* key : keys) {
      const auto it = object_.find(key);
      if (it != object_.end() && !it->is_null()) return &*it;
    }
    return nullptr;
  }

  int64_t Int(std::initializer_list<const char*> keys, int64_t fallback) {
    const Json* value = Find(keys);
    if (value == nullptr) return fallback;
    if (!value->is_number_integer() || *value < 0 || *value > (int64_t{1} << 40)) {
      Fail(NameOf(keys), "a whole number");
      return fallback;
    }
    return value->get<int64_t>();
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
    if (!status_.ok()) return;
    const auto it = object_.find(std::string(key));
    const std::string value = it == object_.end()
                                  ? "absent"
                                  : it->dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80);
    status_ = BadDataError(absl::StrCat(what_, ": field '", key, "' is ", value, " but must be ", must));
  }

  const absl::Status& status() const { return status_; }

 private:
  // The spelling that the file uses, else the first.
  std::string NameOf(std::initializer_list<const char*> keys) const {
    for (const char* key : keys) {
      if (object_.find(key) != object_.end()) return key;
    }
    return *keys.begin();
  }

  const Json& object_;
  std::string what_;
  absl::Status status_;
};

void ReadSizes(Reader& reader, const Family& family, model::ModelSpec& a) {
  a.layers = reader.Required({"num_hidden_layers", "n_layer", "n_layers"});
  a.hidden = reader.Required({"hidden_size", "n_embd", "n_embed", "d_model"});
  a.heads = reader.Required({"num_attention_heads", "n_head", "n_heads"});
  a.kv_heads = reader.Int({"num_key_value_heads"}, a.heads);
  a.vocab = reader.Required({"vocab_size"});
  const int64_t expansion = reader.Int({"expansion_ratio"}, 4);
  a.ffn = reader.Int({"intermediate_size", "n_inner", "ffn_dim"},
                     family.gated ? 0 : std::min<int64_t>(expansion, 1 << 20) * a.hidden);
  a.head_dim = reader.Int({"head_dim"}, 0);
  if (a.head_dim == 0 && a.heads > 0 && family.mixture != Mixture::kLatent) {
    if (a.hidden % a.heads != 0) {
      reader.Fail("num_attention_heads", "a divisor of hidden_size, since head_dim is not given");
    }
    a.head_dim = a.hidden / a.heads;
  }
  if (family.learned_positions) {
    a.learned_positions = reader.Required({"n_positions", "max_position_embeddings"});
    // modeling_opt.py, OPTLearnedPositionalEmbedding: the table has two rows more.
    if (absl::string_view(family.model_type) == "opt") a.learned_positions += 2;
  }
}

void ReadBiases(Reader& reader, const Family& family, model::ModelSpec& a) {
  switch (family.bias) {
    case Bias::kNone:
      return;
    case Bias::kQkv:
      a.qkv_bias = reader.Bool("qkv_bias", true);
      return;
    case Bias::kAll:
      a.qkv_bias = a.attention_out_bias = a.mlp_bias = true;
      return;
    case Bias::kByFile:
      a.qkv_bias = a.attention_out_bias = reader.Bool("attention_bias", false);
      a.mlp_bias = reader.Bool("mlp_bias", false);
      return;
    case Bias::kUseBias:
      a.mlp_bias = reader.Bool("use_bias", reader.Bool("bias", family.bias_default));
      if (reader.Find({"no_bias"}) != nullptr) a.mlp_bias = !reader.Bool("no_bias", true);
      a.qkv_bias = a.attention_out_bias = a.mlp_bias;
      return;
  }
}

void ReadLatentAttention(Reader& reader, model::ModelSpec& a) {
  model::LatentAttention& latent = a.latent.emplace();
  latent.query_rank = reader.Int({"q_lora_rank"}, 0);
  latent.key_value_rank = reader.Required({"kv_lora_rank"});
  latent.nope_dim = reader.Required({"qk_nope_head_dim"});
  latent.rope_dim = reader.Required({"qk_rope_head_dim"});
  latent.value_dim = reader.Required({"v_head_dim"});
  a.head_dim = latent.value_dim;
}

// Experts in every layer but some leading ones, whatever the family calls them.
void ReadExperts(Reader& reader, model::ModelSpec& a, std::vector<std::string>& notes) {
  model::Experts e;
  e.num_experts = reader.Int({"n_routed_experts", "num_local_experts", "num_experts"}, 0);
  if (e.num_experts == 0) return;  // a dense member of the family
  e.top_k = reader.Required({"num_experts_per_tok", "experts_per_token"});
  e.ffn = reader.Int({"moe_intermediate_size"}, a.ffn);
  const int64_t shared = reader.Int({"n_shared_experts"}, 0);
  e.shared_ffn = reader.Int({"shared_expert_intermediate_size"}, std::min<int64_t>(shared, 1024) * e.ffn);
  e.dense_layers = reader.Int({"first_k_dense_replace"}, 0);
  for (const char* key : {"moe_layer_freq", "decoder_sparse_step"}) {
    const Json* step = reader.Find({key});
    if (step != nullptr && *step != 1) {
      reader.Fail(key, "1: no other pattern of layers with and without experts is priced");
    }
  }
  if (const Json* dense = reader.Find({"mlp_only_layers"}); dense != nullptr) {
    for (const Json& layer : *dense) {
      if (layer != e.dense_layers) {
        reader.Fail("mlp_only_layers", "the leading layers 0, 1, 2 and so on");
        break;
      }
      ++e.dense_layers;
    }
  }
  if (e.dense_layers < 0 || e.dense_layers > a.layers) {
    reader.Fail("first_k_dense_replace", "at most the number of layers");
  }
  if (reader.Int({"num_nextn_predict_layers"}, 0) > 0) {
    notes.push_back("the layers that predict further tokens (num_nextn_predict_layers) are left out");
  }
  a.experts = e;
}

// Of the layers, those that attend within a window: what the file says of each layer, else its family's rule.
double WindowShare(Reader& reader, Windows windows, int64_t layers) {
  const Json* types = reader.Find({"layer_types"});
  if (types != nullptr && types->is_array() && !types->empty()) {
    const auto sliding = std::count(types->begin(), types->end(), Json("sliding_attention"));
    return static_cast<double>(sliding) / static_cast<double>(types->size());
  }
  switch (windows) {
    case Windows::kNone:
      return 0;
    case Windows::kAll:
      return 1;
    case Windows::kEverySecond:
      return 0.5;
    case Windows::kPattern: {
      const auto pattern =
          static_cast<double>(std::max<int64_t>(1, reader.Int({"sliding_window_pattern"}, 6)));
      return (pattern - 1) / pattern;
    }
    case Windows::kUpper: {
      const int64_t below = std::min(layers, reader.Int({"max_window_layers"}, 28));
      return static_cast<double>(layers - below) / static_cast<double>(std::max<int64_t>(1, layers));
    }
  }
  return 0;
}

void ReadWindow(Reader& reader, Windows windows, model::ModelSpec& a) {
  if (windows == Windows::kNone || !reader.Bool("use_sliding_window", windows != Windows::kUpper)) return;
  a.sliding_window = reader.Int({"sliding_window"}, 0);
  a.sliding_window_share = WindowShare(reader, windows, a.layers);
  if (a.sliding_window_share == 0) a.sliding_window = 0;
}

// modeling_gpt_oss.py: gate and product are clamped, positions are YaRN's.
void ReadGptOss(Reader& reader, model::ModelSpec& a) {
  a.clamped_gate = true;
  a.yarn = reader.Find({"rope_scaling"}) != nullptr;
}

void NoteWhatIsSimpler(absl::string_view model_type, std::vector<std::string>& notes) {
  if (model_type == "gemma2" || model_type == "gemma3_text") {
    notes.push_back("the norms after attention and MLP are left out");
  }
}

const Family* FindFamily(absl::string_view model_type) {
  for (const Family& family : kFamilies) {
    if (model_type == family.model_type) return &family;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> ConfigModelTypes() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.model_type);
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<ConfigModel> FromConfigJson(absl::string_view text, absl::string_view what) {
  TRAINCTL_ASSIGN_OR_RETURN(const Json config, ParseJson(text, what));
  if (!config.is_object()) return BadDataError(absl::StrCat(what, ": must be a JSON object"));
  Reader reader(config, what);
  const Json* type = reader.Find({"model_type"});
  const Family* family =
      type != nullptr && type->is_string() ? FindFamily(type->get<std::string>()) : nullptr;
  if (family == nullptr) {
    reader.Fail("model_type", absl::StrCat("one of ", absl::StrJoin(ConfigModelTypes(), ", ")));
    return reader.status();
  }
  ConfigModel model;
  model.model_type = family->model_type;
  model::ModelSpec& a = model.spec;
  a.gated_mlp = family->gated;
  a.layer_norm = family->layer_norm;
  ReadSizes(reader, *family, a);
  ReadBiases(reader, *family, a);
  a.tie_embeddings = reader.Bool("tie_word_embeddings", family->tied_default);
  if (family->mixture == Mixture::kLatent) ReadLatentAttention(reader, a);
  if (family->mixture != Mixture::kNone) ReadExperts(reader, a, model.notes);
  a.qk_norm = family->qk_norm;
  ReadWindow(reader, family->windows, a);
  if (model.model_type == "gpt_oss") ReadGptOss(reader, a);
  if (reader.Int({"word_embed_proj_dim"}, a.hidden) != a.hidden) {
    reader.Fail("word_embed_proj_dim", "equal to hidden_size");
  }
  NoteWhatIsSimpler(model.model_type, model.notes);
  TRAINCTL_RETURN_IF_ERROR(reader.status());
  const absl::Status valid = Validate(a);
  if (!valid.ok()) return BadDataError(absl::StrCat(what, ": ", valid.message()));
  return model;
}

}  // namespace trainctl::pricing
