#include "model/config_json.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json.h"
#include "base/status.h"
#include "model/parameter_names.h"

namespace trainctl::model {
namespace {

enum class Mixture : uint8_t { kNone, kRouted, kLatent };  // kLatent: DeepSeek's attention and experts
enum class Bias : uint8_t {
  kNone,
  kQkv,     // of queries, keys and values (mixtures may say otherwise in qkv_bias)
  kAll,     // of every linear layer, unless attention_bias (or OPT's enable_bias) says otherwise
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
  bool whole_qk_norm = false;
  bool shared_norm = false;
  bool embedding_norm = false;
  bool head_bias = false;
  bool expert_bias = false;
  bool gated_shared_experts = false;
  bool attention_sinks = false;
  Windows windows = Windows::kNone;
  Mixture mixture = Mixture::kNone;
  bool clamped_gate = false;
  bool post_norms = false;
  // The class of transformers that the trainer reproduces; null: of another family than the trainer's.
  const char* trained_as = nullptr;
};

constexpr Family kFamilies[] = {
    {.model_type = "llama", .bias = Bias::kByFile, .trained_as = "LlamaForCausalLM"},
    {.model_type = "mistral", .windows = Windows::kAll},
    {.model_type = "mixtral", .windows = Windows::kAll, .mixture = Mixture::kRouted},
    {.model_type = "qwen2", .bias = Bias::kQkv, .windows = Windows::kUpper, .trained_as = "Qwen2ForCausalLM"},
    {.model_type = "qwen2_moe",
     .bias = Bias::kQkv,
     .gated_shared_experts = true,
     .windows = Windows::kUpper,
     .mixture = Mixture::kRouted},
    {.model_type = "qwen3", .bias = Bias::kByFile, .qk_norm = true, .windows = Windows::kUpper},
    {.model_type = "qwen3_moe",
     .bias = Bias::kByFile,
     .qk_norm = true,
     .windows = Windows::kUpper,
     .mixture = Mixture::kRouted},
    {.model_type = "deepseek_v2", .mixture = Mixture::kLatent},
    {.model_type = "deepseek_v3", .mixture = Mixture::kLatent},
    {.model_type = "kimi_k2", .mixture = Mixture::kLatent},
    {.model_type = "olmoe", .qk_norm = true, .whole_qk_norm = true, .mixture = Mixture::kRouted},
    {.model_type = "gpt_oss",
     .bias = Bias::kAll,
     .expert_bias = true,
     .attention_sinks = true,
     .windows = Windows::kEverySecond,
     .mixture = Mixture::kRouted,
     .clamped_gate = true},
    {.model_type = "olmo2", .bias = Bias::kByFile, .qk_norm = true, .whole_qk_norm = true},
    {.model_type = "smollm3", .bias = Bias::kByFile, .tied_default = true},
    {.model_type = "granite", .bias = Bias::kByFile, .tied_default = true},
    {.model_type = "gemma", .tied_default = true},
    {.model_type = "gemma2", .tied_default = true, .windows = Windows::kEverySecond, .post_norms = true},
    {.model_type = "gemma3_text",
     .tied_default = true,
     .qk_norm = true,
     .windows = Windows::kPattern,
     .post_norms = true},
    {.model_type = "internlm2", .bias = Bias::kUseBias},
    {.model_type = "phi3", .windows = Windows::kAll},
    {.model_type = "phi",
     .gated = false,
     .layer_norm = true,
     .bias = Bias::kAll,
     .shared_norm = true,
     .head_bias = true},
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
    {.model_type = "bloom",
     .gated = false,
     .layer_norm = true,
     .bias = Bias::kAll,
     .tied_default = true,
     .embedding_norm = true},
    {.model_type = "mpt", .gated = false, .bias = Bias::kUseBias, .tied_default = true},
    {.model_type = "starcoder2",
     .gated = false,
     .layer_norm = true,
     .bias = Bias::kUseBias,
     .bias_default = true,
     .tied_default = true,
     .windows = Windows::kAll},
};

// Fields that cannot change what the model computes in training; of pad_token_id only the gradient of its own
// row of the embedding, which transformers leaves out and we do not.
const std::set<std::string>& NeutralFields() {
  static const auto* fields = new std::set<std::string>{
      "_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache", "bos_token_id",
      "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "return_dict", "output_attentions",
      "output_hidden_states", "torchscript", "use_bfloat16", "_attn_implementation",
      "_attn_implementation_autoset", "attn_implementation", "_flash_attn_2_enabled", "max_sequence_length",
      "is_llama_config", "transformers.js_config", "task_specific_params", "problem_type", "id2label",
      "label2id", "num_labels", "finetuning_task", "prefix", "tokenizer_class", "max_window_layers",
      "temperature", "top_p", "top_k", "do_sample", "max_length", "min_length", "unsloth_fixed",
      "unsloth_version",
      // Settings of generation that older versions of
      // transformers write.
      "num_beams", "num_beam_groups", "diversity_penalty", "repetition_penalty", "length_penalty",
      "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences",
      "output_scores", "return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id",
      "decoder_start_token_id", "remove_invalid_values", "exponential_decay_length_penalty",
      "suppress_tokens", "begin_suppress_tokens", "typical_p", "early_stopping"};
  return *fields;
}

// Fields that change nothing with this value; null is the default of every field, as in transformers.
bool HasNeutralValue(const std::string& key, const Json& value) {
  static const auto* values = new std::map<std::string, Json>{{"use_mrope", false},
                                                              {"is_decoder", false},
                                                              {"is_encoder_decoder", false},
                                                              {"add_cross_attention", false},
                                                              {"tie_encoder_decoder", false},
                                                              {"chunk_size_feed_forward", 0},
                                                              {"pruned_heads", Json::object()},
                                                              {"rope_interleaved", false},
                                                              {"partial_rotary_factor", 1.0},
                                                              {"num_nextn_predict_layers", 0}};
  const auto found = values->find(key);
  return value.is_null() || (found != values->end() && found->second == value);
}

// Reads one object. The first mistake about what the model is sticks as the status; what only training asks
// for is collected apart, and so are the names of the fields that were read.
class Reader {
 public:
  // `all_spellings`: of several names for a field take any, not the first alone.
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
    if (status_.ok()) status_ = BadDataError(absl::StrCat(what_, ": ", Wrong(key, must)));
  }

  // What follows matters for training alone.

  double Number(std::initializer_list<const char*> keys, double fallback) {
    const Json* value = Find(keys);
    if (value == nullptr) return fallback;
    if (!value->is_number()) Refuse(NameOf(keys), "a number");
    return value->is_number() ? value->get<double>() : fallback;
  }

  int64_t Position(std::initializer_list<const char*> keys, int64_t fallback) {
    const Json* value = Find(keys);
    if (value == nullptr) return fallback;
    if (value->is_number_integer() && *value >= 1 && *value <= kMostPositions) return value->get<int64_t>();
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

  void RefuseTheRest(const std::set<std::string>& neutral) {
    for (const auto& [key, value] : object_.items()) {
      if (seen_.contains(key) || neutral.contains(key) || HasNeutralValue(key, value)) continue;
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

void ReadSizes(Reader& reader, const Family& family, ModelSpec& spec) {
  spec.layers = reader.Required({"num_hidden_layers", "n_layer", "n_layers"});
  spec.hidden = reader.Required({"hidden_size", "n_embd", "n_embed", "d_model"});
  spec.heads = reader.Required({"num_attention_heads", "n_head", "n_heads"});
  spec.kv_heads = reader.Int({"num_key_value_heads"}, spec.heads);
  spec.vocab = reader.Required({"vocab_size"});
  int64_t usual_ffn = 0;
  if (!family.gated) {
    usual_ffn = std::min<int64_t>(reader.Int({"expansion_ratio"}, 4), 1 << 20) * spec.hidden;
  }
  spec.ffn = reader.Int({"intermediate_size", "n_inner", "ffn_dim"}, usual_ffn);
  if (reader.Find({"head_dim"}) != nullptr) {
    spec.head_dim = reader.Required({"head_dim"});
  } else if (spec.heads > 0 && family.mixture != Mixture::kLatent) {
    if (spec.hidden % spec.heads != 0) {
      reader.Fail("num_attention_heads", "a divisor of hidden_size, since head_dim is not given");
    }
    spec.head_dim = spec.hidden / spec.heads;
  }
  if (family.learned_positions) {
    spec.learned_positions = reader.Required({"n_positions", "max_position_embeddings"});
    // modeling_opt.py, OPTLearnedPositionalEmbedding: the table has two rows more.
    if (absl::string_view(family.model_type) == "opt") spec.learned_positions += 2;
  }
}

void ReadBiases(Reader& reader, const Family& family, ModelSpec& spec) {
  switch (family.bias) {
    case Bias::kNone:
      return;
    case Bias::kQkv:
      spec.qkv_bias = family.trained_as != nullptr || reader.Bool("qkv_bias", true);
      return;
    case Bias::kAll:
      spec.mlp_bias = reader.Bool("enable_bias", true);
      spec.qkv_bias = spec.attention_out_bias = reader.Bool("attention_bias", spec.mlp_bias);
      return;
    case Bias::kByFile:
      spec.qkv_bias = spec.attention_out_bias = reader.Bool("attention_bias", false);
      spec.mlp_bias = reader.Bool("mlp_bias", false);
      return;
    case Bias::kUseBias:
      spec.mlp_bias = reader.Bool("use_bias", reader.Bool("bias", family.bias_default));
      if (reader.Find({"no_bias"}) != nullptr) spec.mlp_bias = !reader.Bool("no_bias", true);
      spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias;
      return;
  }
}

void ReadLatentAttention(Reader& reader, ModelSpec& spec) {
  LatentAttention& latent = spec.latent.emplace();
  latent.query_rank = reader.Int({"q_lora_rank"}, 0);
  latent.key_value_rank = reader.Required({"kv_lora_rank"});
  latent.nope_dim = reader.Required({"qk_nope_head_dim"});
  latent.rope_dim = reader.Required({"qk_rope_head_dim"});
  latent.value_dim = reader.Required({"v_head_dim"});
  spec.head_dim = latent.value_dim;
}

// Experts in every layer but some leading ones, whatever the family calls them.
void ReadExperts(Reader& reader, ModelSpec& spec) {
  Experts e;
  e.num_experts = reader.Int({"n_routed_experts", "num_local_experts", "num_experts"}, 0);
  if (e.num_experts == 0) return;  // a dense member of the family
  e.top_k = reader.Required({"num_experts_per_tok", "experts_per_token"});
  e.ffn = reader.Int({"moe_intermediate_size"}, spec.ffn);
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
  if (e.dense_layers < 0 || e.dense_layers > spec.layers) {
    reader.Fail("first_k_dense_replace", "at most the number of layers");
  }
  spec.mtp_layers = reader.Int({"num_nextn_predict_layers"}, 0);
  spec.experts = e;
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

void ReadWindow(Reader& reader, Windows windows, ModelSpec& spec) {
  if (windows == Windows::kNone) return;
  const int64_t window = reader.Int({"sliding_window"}, 0);
  if (!reader.Bool("use_sliding_window", windows != Windows::kUpper)) return;
  const double share = WindowShare(reader, windows, spec.layers);
  if (share == 0) return;
  spec.sliding_window = window;
  spec.sliding_window_share = share;
}

// `rope_scaling`, or `rope_parameters` of newer transformers (which carries rope_theta as well).
std::vector<std::string> ReadRopeTable(const Json& object, ModelSpec& spec) {
  if (!object.is_object()) return {"must be an object"};
  Reader reader(object, "", /*all_spellings=*/true);
  const Json* old_kind = reader.Find({"type"});
  const Json* kind = reader.Find({"rope_type", "type"});
  if (kind == nullptr) {
    reader.Refuse("rope_type", "\"llama3\" or \"default\"");
    return reader.unknown_fields();
  }
  if (old_kind != nullptr && *kind != *old_kind) reader.Refuse("type", "equal to 'rope_type'");
  spec.rope_theta = reader.Number({"rope_theta"}, spec.rope_theta);
  reader.Only("partial_rotary_factor", 1.0);
  if (*kind == "llama3") {
    RopeScaling& scaling = spec.rope_scaling.emplace();
    for (const auto& [key, value] : {std::pair{"factor", &scaling.factor},
                                     {"low_freq_factor", &scaling.low_freq_factor},
                                     {"high_freq_factor", &scaling.high_freq_factor}}) {
      if (reader.Find({key}) == nullptr) reader.Refuse(key, "a number");
      *value = reader.Number({key}, *value);
    }
    constexpr char kOriginal[] = "original_max_position_embeddings";
    if (reader.Find({kOriginal}) == nullptr) reader.Refuse(kOriginal, "a whole number");
    scaling.original_max_position = reader.Position({kOriginal}, scaling.original_max_position);
  } else if (*kind != "default") {
    spec.yarn = *kind == "yarn";
    reader.Refuse(old_kind == kind ? "type" : "rope_type",
                  "\"llama3\" or \"default\" (no other scaling is implemented)");
  }
  reader.RefuseTheRest({});
  return reader.unknown_fields();
}

void ReadRope(Reader& reader, ModelSpec& spec) {
  spec.rope_theta = reader.Number({"rope_theta"}, spec.rope_theta);
  const double outer_theta = spec.rope_theta;
  std::optional<RopeScaling> first;
  for (const char* table : {"rope_scaling", "rope_parameters"}) {
    const Json* object = reader.Find({table});
    if (object == nullptr) continue;
    const bool is_second = spec.rope_scaling.has_value() || first.has_value();
    first = std::exchange(spec.rope_scaling, std::nullopt);
    for (const std::string& reason : ReadRopeTable(*object, spec)) {
      reader.Refuse(absl::StrCat(table, ": ", reason));
    }
    if (is_second && first != spec.rope_scaling)
      reader.Refuse("rope_scaling", "the same as 'rope_parameters'");
  }
  if (reader.Find({"rope_theta"}) != nullptr && spec.rope_theta != outer_theta) {
    reader.Refuse("rope_theta", absl::StrCat("the same as in the rope table (", spec.rope_theta, ")"));
  }
}

// What no size depends on. An absent field has the default of Llama in transformers.
void ReadMathematics(Reader& reader, const Family& family, ModelSpec& spec) {
  const absl::string_view type = family.model_type;
  spec.max_position = reader.Position({"max_position_embeddings", "n_positions", "max_seq_len"},
                                      type == "qwen2" ? 32768 : 2048);
  spec.norm_eps = reader.Number({"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"}, 1e-6);
  spec.init_std = reader.Number({"initializer_range"}, spec.init_std);
  ReadRope(reader, spec);
}

// Fields of Llama and Qwen2 that have one value where the trainer reproduces them.
void RefuseOtherMathematics(Reader& reader, const Family& family) {
  reader.Only("architectures", Json::array({family.trained_as}));
  reader.Only("hidden_act", "silu");
  reader.Only("attention_dropout", 0.0);
  if (absl::string_view(family.model_type) == "llama") {
    reader.Only("pretraining_tp", 1);
    reader.Only("rope_interleaved", false);
  } else {
    reader.Only("use_sliding_window", false);
  }
  if (const Json* layer_types = reader.Find({"layer_types"}); layer_types != nullptr) {
    const bool all_full = layer_types->is_array() &&
                          std::count(layer_types->begin(), layer_types->end(), Json("full_attention")) ==
                              static_cast<int64_t>(layer_types->size());
    if (!all_full) {
      reader.Refuse("layer_types", "\"full_attention\" throughout (nothing else is implemented)");
    }
  }
  reader.RefuseTheRest(NeutralFields());
}

const Family* FindFamily(absl::string_view model_type) {
  for (const Family& family : kFamilies) {
    if (model_type == family.model_type) return &family;
  }
  return nullptr;
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
  for (const Family& family : kFamilies) names.emplace_back(family.model_type);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> TrainedModelTypes() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) {
    if (family.trained_as != nullptr) names.emplace_back(family.model_type);
  }
  return names;
}

absl::StatusOr<ConfigModel> ReadConfigJson(absl::string_view json_text, absl::string_view what) {
  TRAINCTL_ASSIGN_OR_RETURN(const Json config, ParseJson(json_text, what));
  if (!config.is_object()) return BadDataError(absl::StrCat(what, ": must be a JSON object"));
  const auto type = config.find("model_type");
  const Family* family =
      type != config.end() && type->is_string() ? FindFamily(type->get<std::string>()) : nullptr;
  Reader reader(config, what, family != nullptr && family->trained_as == nullptr);
  reader.Find({"model_type"});
  if (family == nullptr) {
    reader.Fail("model_type",
                absl::StrCat("one of ", absl::StrJoin(ConfigModelTypes(), ", "),
                             " (to be trained: ", absl::StrJoin(TrainedModelTypes(), " or "),
                             "; the others can be planned: trainctl plan RECIPE --as megatron-core)"));
    return reader.status();
  }
  ConfigModel model;
  model.model_type = family->model_type;
  ModelSpec& spec = model.spec;
  // A trained family without names of its own takes Llama's.
  const bool named_as_llama =
      family->trained_as != nullptr && FindParameterNames(family->model_type) == nullptr;
  spec.family = named_as_llama ? "llama" : family->model_type;
  spec.gated_mlp = family->gated;
  spec.layer_norm = family->layer_norm;
  spec.qk_norm = family->qk_norm || (family->trained_as == nullptr && reader.Bool("qk_layernorm", false));
  spec.whole_qk_norm = family->whole_qk_norm;
  spec.shared_norm = family->shared_norm;
  spec.embedding_norm = family->embedding_norm;
  spec.head_bias = family->head_bias;
  spec.expert_bias = family->expert_bias;
  spec.gated_shared_experts = family->gated_shared_experts;
  spec.attention_sinks = family->attention_sinks;
  spec.clamped_gate = family->clamped_gate;
  spec.post_norms = family->post_norms;
  ReadSizes(reader, *family, spec);
  ReadBiases(reader, *family, spec);
  spec.tie_embeddings = reader.Bool("tie_word_embeddings", family->tied_default);
  if (family->mixture == Mixture::kLatent) ReadLatentAttention(reader, spec);
  if (family->mixture != Mixture::kNone) ReadExperts(reader, spec);
  const bool has_mlp = !spec.experts.has_value() || spec.experts->dense_layers > 0;
  if (has_mlp && spec.ffn == 0) reader.Fail("intermediate_size", "a whole number of at least 1");
  ReadWindow(reader, family->windows, spec);
  if (model.model_type == "opt" && reader.Int({"word_embed_proj_dim"}, spec.hidden) != spec.hidden) {
    reader.Fail("word_embed_proj_dim", "equal to hidden_size");
  }
  ReadMathematics(reader, *family, spec);
  if (family->trained_as != nullptr) {
    RefuseOtherMathematics(reader, *family);
    model.unknown_fields = reader.unknown_fields();
  }
  TRAINCTL_RETURN_IF_ERROR(reader.status());
  const absl::Status valid = Validate(spec);
  if (!valid.ok()) return BadDataError(absl::StrCat(what, ": ", valid.message()));
  return model;
}

absl::StatusOr<ModelSpec> FromHuggingFaceConfig(absl::string_view json_text, absl::string_view what) {
  TRAINCTL_ASSIGN_OR_RETURN(const ConfigModel model, ReadConfigJson(json_text, what));
  if (!model.unknown_fields.empty()) {
    return BadDataError(absl::StrCat(what, ": ", absl::StrJoin(model.unknown_fields, "; ")));
  }
  const absl::Status trainable = CheckTrainable(model.spec);
  if (!trainable.ok()) return BadDataError(absl::StrCat(what, ": ", trainable.message()));
  return model.spec;
}

std::string ToHuggingFaceConfig(const ModelSpec& spec, DType dtype, const SpecialTokens& tokens) {
  const bool qwen2 = spec.qkv_bias && !spec.attention_out_bias;
  Json config = {
      {"architectures", Json::array({qwen2 ? "Qwen2ForCausalLM" : "LlamaForCausalLM"})},
      {"model_type", qwen2 ? "qwen2" : "llama"},
      {"hidden_size", spec.hidden},
      {"intermediate_size", spec.ffn},
      {"num_hidden_layers", spec.layers},
      {"num_attention_heads", spec.heads},
      {"num_key_value_heads", spec.kv_heads},
      {"head_dim", spec.head_dim},
      {"vocab_size", spec.vocab},
      {"max_position_embeddings", spec.max_position},
      {"rms_norm_eps", spec.norm_eps},
      {"rope_theta", spec.rope_theta},
      {"rope_scaling", nullptr},
      {"tie_word_embeddings", spec.tie_embeddings},
  };
  if (spec.rope_scaling.has_value()) {
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", spec.rope_scaling->factor},
                              {"low_freq_factor", spec.rope_scaling->low_freq_factor},
                              {"high_freq_factor", spec.rope_scaling->high_freq_factor},
                              {"original_max_position_embeddings", spec.rope_scaling->original_max_position}};
  }
  if (qwen2) {
    config["use_sliding_window"] = false;
  } else {
    config["attention_bias"] = spec.qkv_bias;
    config["mlp_bias"] = spec.mlp_bias;
  }
  config["hidden_act"] = "silu";
  config["initializer_range"] = spec.init_std;
  config["attention_dropout"] = 0.0;
  config["bos_token_id"] = JsonOfIds(tokens.bos);
  config["eos_token_id"] = JsonOfIds(tokens.eos);
  config["pad_token_id"] = JsonOfIds(tokens.pad);
  config["torch_dtype"] = TorchName(dtype);
  return config.dump(2) + "\n";
}

}  // namespace trainctl::model
