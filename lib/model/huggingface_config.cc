// config.json of Hugging Face transformers. Two of its architectures are this family: Llama, and
// Qwen2, which is Llama with biases on q, k and v alone.

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/status.h"
#include "model/model_spec.h"

namespace trainctl::model {
namespace {

// Fields that cannot change what the model computes in training.
const std::set<std::string>& NeutralFields() {
  static const auto* fields = new std::set<std::string>{"_name_or_path",
                                                        "transformers_version",
                                                        "torch_dtype",
                                                        "dtype",
                                                        "use_cache",
                                                        "bos_token_id",
                                                        "eos_token_id",
                                                        "pad_token_id",
                                                        "unk_token_id",
                                                        "sep_token_id",
                                                        "return_dict",
                                                        "output_attentions",
                                                        "output_hidden_states",
                                                        "torchscript",
                                                        "use_bfloat16",
                                                        "_attn_implementation",
                                                        "_attn_implementation_autoset",
                                                        "attn_implementation",
                                                        "_flash_attn_2_enabled",
                                                        "max_sequence_length",
                                                        "is_llama_config",
                                                        "transformers.js_config",
                                                        "task_specific_params",
                                                        "problem_type",
                                                        "id2label",
                                                        "label2id",
                                                        "num_labels",
                                                        "finetuning_task",
                                                        "prefix",
                                                        "tokenizer_class",
                                                        "max_window_layers",
                                                        "temperature",
                                                        "top_p",
                                                        "top_k",
                                                        "do_sample",
                                                        "max_length",
                                                        "min_length",
                                                        "unsloth_fixed",
                                                        "unsloth_version"};
  return *fields;
}

// Reads fields one by one and remembers which were read, so that the rest can be refused by name.
class ConfigReader {
 public:
  ConfigReader(const Json& object, std::string what) : object_(object), what_(std::move(what)) {}

  // The field, or nullptr when it is absent or null (transformers treats both as the default).
  const Json* Find(const char* key) {
    seen_.insert(key);
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  absl::Status Wrong(absl::string_view key, absl::string_view must) const {
    const auto it = object_.find(std::string(key));
    const std::string value = it == object_.end()
                                  ? "absent"
                                  : it->dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80);
    return BadDataError(absl::StrCat(what_, ": field '", key, "' is ", value, " but must be ", must));
  }

  absl::Status Int(const char* key, int64_t* value, bool required = false) {
    const Json* field = Find(key);
    if (field == nullptr) return required ? Wrong(key, "an integer") : absl::OkStatus();
    if (!field->is_number_integer() ||
        (field->is_number_unsigned() && field->get<uint64_t>() > uint64_t{INT64_MAX})) {
      return Wrong(key, "an integer");
    }
    *value = field->get<int64_t>();
    return absl::OkStatus();
  }

  absl::Status Double(const char* key, double* value, bool required = false) {
    const Json* field = Find(key);
    if (field == nullptr) return required ? Wrong(key, "a number") : absl::OkStatus();
    if (!field->is_number()) return Wrong(key, "a number");
    *value = field->get<double>();
    return absl::OkStatus();
  }

  absl::Status Bool(const char* key, bool* value) {
    const Json* field = Find(key);
    if (field == nullptr) return absl::OkStatus();
    if (!field->is_boolean()) return Wrong(key, "true or false");
    *value = field->get<bool>();
    return absl::OkStatus();
  }

  // An optional field with one value that this family can compute.
  absl::Status Only(const char* key, const Json& allowed) {
    const Json* field = Find(key);
    if (field == nullptr || *field == allowed) return absl::OkStatus();
    return Wrong(key, absl::StrCat(allowed.dump(), " (nothing else is implemented)"));
  }

  absl::Status RefuseTheRest(const std::set<std::string>& neutral) const {
    for (const auto& [key, value] : object_.items()) {
      if (seen_.contains(key) || neutral.contains(key)) continue;
      return BadDataError(
          absl::StrCat(what_, ": field '", key,
                       "' is not known and may change what the model computes; remove it if it does not"));
    }
    return absl::OkStatus();
  }

 private:
  const Json& object_;
  std::string what_;
  std::set<std::string> seen_;
};

// `rope_scaling`, or `rope_parameters` of newer transformers (which carries rope_theta as well).
absl::Status ReadRope(const Json& object, const std::string& what, ModelSpec* spec) {
  if (!object.is_object()) return BadDataError(absl::StrCat(what, ": must be an object"));
  ConfigReader reader(object, what);
  const Json* kind = reader.Find("rope_type");
  const Json* old_kind = reader.Find("type");
  const char* key = kind != nullptr ? "rope_type" : "type";
  if (kind != nullptr && old_kind != nullptr && *kind != *old_kind) {
    return reader.Wrong("type", "equal to 'rope_type'");
  }
  if (kind == nullptr) kind = old_kind;
  if (kind == nullptr) return reader.Wrong("rope_type", "\"llama3\" or \"default\"");
  TRAINCTL_RETURN_IF_ERROR(reader.Double("rope_theta", &spec->rope_theta));
  TRAINCTL_RETURN_IF_ERROR(reader.Only("partial_rotary_factor", 1.0));
  if (*kind == "llama3") {
    RopeScaling scaling;
    TRAINCTL_RETURN_IF_ERROR(reader.Double("factor", &scaling.factor, true));
    TRAINCTL_RETURN_IF_ERROR(reader.Double("low_freq_factor", &scaling.low_freq_factor, true));
    TRAINCTL_RETURN_IF_ERROR(reader.Double("high_freq_factor", &scaling.high_freq_factor, true));
    TRAINCTL_RETURN_IF_ERROR(
        reader.Int("original_max_position_embeddings", &scaling.original_max_position, true));
    spec->rope_scaling = scaling;
  } else if (*kind != "default") {
    return reader.Wrong(key, "\"llama3\" or \"default\" (no other scaling is implemented)");
  }
  return reader.RefuseTheRest({});
}

absl::Status ReadArchitecture(ConfigReader& reader, std::string* model_type) {
  const Json* type = reader.Find("model_type");
  if (type == nullptr || (*type != "llama" && *type != "qwen2")) {
    return reader.Wrong("model_type", "\"llama\" or \"qwen2\"");
  }
  *model_type = type->get<std::string>();
  const char* expected = *model_type == "llama" ? "LlamaForCausalLM" : "Qwen2ForCausalLM";
  return reader.Only("architectures", Json::array({expected}));
}

absl::Status ReadDimensions(ConfigReader& reader, ModelSpec* spec) {
  TRAINCTL_RETURN_IF_ERROR(reader.Int("hidden_size", &spec->hidden, true));
  TRAINCTL_RETURN_IF_ERROR(reader.Int("intermediate_size", &spec->ffn, true));
  TRAINCTL_RETURN_IF_ERROR(reader.Int("num_hidden_layers", &spec->layers, true));
  TRAINCTL_RETURN_IF_ERROR(reader.Int("num_attention_heads", &spec->heads, true));
  TRAINCTL_RETURN_IF_ERROR(reader.Int("vocab_size", &spec->vocab, true));
  spec->kv_heads = spec->heads;
  TRAINCTL_RETURN_IF_ERROR(reader.Int("num_key_value_heads", &spec->kv_heads));
  if (reader.Find("head_dim") != nullptr) return reader.Int("head_dim", &spec->head_dim);
  if (spec->heads < 1 || spec->hidden % spec->heads != 0) {
    return reader.Wrong("num_attention_heads", "a divisor of hidden_size, since head_dim is not given");
  }
  spec->head_dim = spec->hidden / spec->heads;
  return absl::OkStatus();
}

absl::Status ReadMathematics(ConfigReader& reader, const std::string& model_type, const std::string& what,
                             ModelSpec* spec) {
  // The defaults of transformers for a field that is absent.
  spec->max_position = model_type == "llama" ? 2048 : 32768;
  spec->norm_eps = 1e-6;
  TRAINCTL_RETURN_IF_ERROR(reader.Int("max_position_embeddings", &spec->max_position));
  TRAINCTL_RETURN_IF_ERROR(reader.Double("rms_norm_eps", &spec->norm_eps));
  TRAINCTL_RETURN_IF_ERROR(reader.Double("initializer_range", &spec->init_std));
  TRAINCTL_RETURN_IF_ERROR(reader.Bool("tie_word_embeddings", &spec->tie_embeddings));
  TRAINCTL_RETURN_IF_ERROR(reader.Only("hidden_act", "silu"));
  TRAINCTL_RETURN_IF_ERROR(reader.Only("attention_dropout", 0.0));
  if (model_type == "llama") {
    TRAINCTL_RETURN_IF_ERROR(reader.Only("pretraining_tp", 1));
    TRAINCTL_RETURN_IF_ERROR(reader.Only("rope_interleaved", false));
    TRAINCTL_RETURN_IF_ERROR(reader.Bool("attention_bias", &spec->qkv_bias));
    TRAINCTL_RETURN_IF_ERROR(reader.Bool("mlp_bias", &spec->mlp_bias));
    spec->attention_out_bias = spec->qkv_bias;
  } else {
    TRAINCTL_RETURN_IF_ERROR(reader.Only("use_sliding_window", false));
    reader.Find("sliding_window");  // without effect while use_sliding_window is false
    spec->qkv_bias = true;
  }
  if (const Json* layer_types = reader.Find("layer_types"); layer_types != nullptr) {
    if (!layer_types->is_array()) return reader.Wrong("layer_types", "a list");
    for (const Json& layer_type : *layer_types) {
      if (layer_type != "full_attention") {
        return reader.Wrong("layer_types", "\"full_attention\" throughout (nothing else is implemented)");
      }
    }
  }
  TRAINCTL_RETURN_IF_ERROR(reader.Double("rope_theta", &spec->rope_theta));
  const Json* theta = reader.Find("rope_theta");
  const double outer_theta = spec->rope_theta;
  const Json* scaling = reader.Find("rope_scaling");
  const Json* parameters = reader.Find("rope_parameters");
  if (scaling != nullptr) {
    TRAINCTL_RETURN_IF_ERROR(ReadRope(*scaling, absl::StrCat(what, ": rope_scaling"), spec));
  }
  if (parameters != nullptr) {
    const std::optional<RopeScaling> first = spec->rope_scaling;
    spec->rope_scaling.reset();
    TRAINCTL_RETURN_IF_ERROR(ReadRope(*parameters, absl::StrCat(what, ": rope_parameters"), spec));
    if (scaling != nullptr && first != spec->rope_scaling) {
      return reader.Wrong("rope_scaling", "the same as 'rope_parameters'");
    }
  }
  if (theta != nullptr && spec->rope_theta != outer_theta) {
    return reader.Wrong("rope_theta", absl::StrCat("the same as in the rope table (", spec->rope_theta, ")"));
  }
  return absl::OkStatus();
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

absl::StatusOr<ModelSpec> FromHuggingFaceConfig(absl::string_view json_text, absl::string_view what) {
  TRAINCTL_ASSIGN_OR_RETURN(const Json config, ParseJson(json_text, what));
  const std::string where(what);
  if (!config.is_object()) return BadDataError(absl::StrCat(where, ": must be a JSON object"));
  ConfigReader reader(config, where);
  ModelSpec spec;
  std::string model_type;
  TRAINCTL_RETURN_IF_ERROR(ReadArchitecture(reader, &model_type));
  TRAINCTL_RETURN_IF_ERROR(ReadDimensions(reader, &spec));
  TRAINCTL_RETURN_IF_ERROR(ReadMathematics(reader, model_type, where, &spec));
  TRAINCTL_RETURN_IF_ERROR(reader.RefuseTheRest(NeutralFields()));
  const absl::Status valid = CheckTrainable(spec);
  if (!valid.ok()) return BadDataError(absl::StrCat(where, ": ", valid.message()));
  return spec;
}

std::string ToHuggingFaceConfig(const ModelSpec& spec, DType dtype) {
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
  config["torch_dtype"] = TorchName(dtype);
  return config.dump(2) + "\n";
}

}  // namespace trainctl::model
