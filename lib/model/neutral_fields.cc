#include "model/neutral_fields.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/json.h"

namespace trainctl::model {
namespace {

// Fields whose value cannot matter. The trained families in transformers read none of them while they compute
// logits.
const std::set<std::string>& NeutralNames() {
  static const auto* names = new std::set<std::string>{
      // Where the file comes from, and texts about the model.
      "_name_or_path", "name_or_path", "_commit_hash", "transformers_version", "transformers.js_config",
      "unsloth_fixed", "unsloth_version", "is_llama_config", "language", "license", "tags", "library_name",
      "pipeline_tag",
      // Type, device and kernels. The recipe determines them.
      "torch_dtype", "dtype", "bf16", "fp16", "fp32", "use_bfloat16", "torchscript", "xla_device",
      "_attn_implementation", "_attn_implementation_internal", "_attn_implementation_autoset",
      "attn_implementation", "_flash_attn_2_enabled", "use_flash_attn", "use_flash_attention",
      "use_flash_attention_2", "_experts_implementation", "_experts_implementation_internal",
      "experts_implementation", "gradient_checkpointing", "base_model_tp_plan", "base_model_pp_plan",
      "base_model_ep_plan", "base_model_fsdp_plan",
      // A loss that only models of TensorFlow had.
      "tf_legacy_loss",
      // The tokenizer. Of pad_token_id only the gradient of its own row of the embedding depends on it:
      // transformers leaves it out, and trainctl does not.
      "bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "bos_token",
      "eos_token", "pad_token", "unk_token", "sep_token", "tokenizer_class", "tokenizer_file", "prefix",
      // Lengths that no model reads; max_position_embeddings is the one that counts.
      "max_sequence_length", "model_max_length", "seq_length", "n_ctx",
      // The trained families are decoders with either value.
      "is_decoder",
      // Qwen2's layers with a window, of which there are none unless use_sliding_window says so.
      "max_window_layers",
      // Outputs of a call other than the logits.
      "return_dict", "output_attentions", "output_hidden_states", "tie_last_hidden_states",
      "keys_to_ignore_at_inference",
      // Heads for other tasks.
      "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
      "summary_first_dropout", "task_specific_params", "problem_type", "id2label", "label2id", "num_labels",
      "finetuning_task", "classifier_dropout",
      // Settings of generation that older versions of transformers write.
      "use_cache", "cache_implementation", "temperature", "top_p", "top_k", "min_p", "typical_p",
      "epsilon_cutoff", "eta_cutoff", "do_sample", "max_length", "min_length", "max_new_tokens",
      "min_new_tokens", "max_time", "num_beams", "num_beam_groups", "diversity_penalty", "repetition_penalty",
      "encoder_repetition_penalty", "length_penalty", "penalty_alpha", "no_repeat_ngram_size",
      "encoder_no_repeat_ngram_size", "bad_words_ids", "force_words_ids", "num_return_sequences",
      "output_scores", "output_logits", "return_dict_in_generate", "renormalize_logits", "constraints",
      "forced_bos_token_id", "forced_eos_token_id", "decoder_start_token_id", "remove_invalid_values",
      "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens", "sequence_bias",
      "guidance_scale", "early_stopping", "stop_strings", "low_memory"};
  return *names;
}

// Fields that change nothing with this value, as JSON. A name may have several rows. Not here, though it
// looks alike: attention_multiplier 1.0, which in Granite takes the place of 1 / sqrt(head_dim).
struct NeutralValue {
  const char* name;
  const char* value;
};

constexpr NeutralValue kNeutralValues[] = {
    // A feature that is switched off, or the usual attention.
    {"use_mrope", "false"},
    {"rope_interleaved", "false"},
    {"use_rope", "true"},
    {"use_dynamic_ntk", "false"},
    {"use_logn_attn", "false"},
    {"alibi", "false"},
    {"use_alibi", "false"},
    {"causal", "true"},
    {"is_causal", "true"},
    {"use_bidirectional_attention", "false"},
    {"use_sliding_window", "false"},
    {"is_encoder_decoder", "false"},
    {"add_cross_attention", "false"},
    {"tie_encoder_decoder", "false"},
    {"use_qk_norm", "false"},
    {"qk_norm", "false"},
    {"qk_layernorm", "false"},
    {"parallel_attn", "false"},
    {"use_parallel_residual", "false"},
    {"parallel_residual", "false"},
    {"scale_embeddings", "false"},
    {"scale_embedding", "false"},
    {"scale_attn_weights", "true"},  // by 1 / sqrt(head_dim)
    {"scale_attn_by_inverse_layer_idx", "false"},
    {"reorder_and_upcast_attn", "false"},
    // Biases beyond those of the family; the weights must agree.
    {"use_bias", "false"},
    {"bias", "false"},
    {"mlp_bias", "false"},
    {"attention_bias", "false"},
    {"add_bias_linear", "false"},
    {"lm_head_bias", "false"},
    // RMSNorm, by its name or by a flag.
    {"norm_type", "\"rms\""},
    {"norm_type", "\"rms_norm\""},
    {"norm_type", "\"rmsnorm\""},
    {"rms_norm", "true"},
    {"use_rms_norm", "true"},
    // Lists and tables of exceptions that have no entry.
    {"pruned_heads", "{}"},
    {"per_layer_config", "{}"},
    {"mlp_only_layers", "[]"},
    {"auto_map", "{}"},
    // Nothing is chunked, sliced or predicted ahead.
    {"chunk_size_feed_forward", "0"},
    {"pretraining_tp", "1"},
    {"num_nextn_predict_layers", "0"},
    // No experts.
    {"num_experts", "0"},
    {"num_local_experts", "0"},
    {"n_routed_experts", "0"},
    {"n_shared_experts", "0"},
    {"num_experts_per_tok", "0"},
    {"output_router_logits", "false"},
    {"router_aux_loss_coef", "0"},
    // No layer is skipped.
    {"layerdrop", "0"},
    // Factors of one, by which something is multiplied or divided.
    {"partial_rotary_factor", "1"},
    {"rotary_pct", "1"},
    {"rope_ratio", "1"},
    {"embedding_multiplier", "1"},
    {"residual_multiplier", "1"},
    {"lm_head_multiplier", "1"},
    {"key_multiplier", "1"},
    {"attention_in_multiplier", "1"},
    {"attention_out_multiplier", "1"},
    {"logits_scaling", "1"},
    {"logit_scale", "1"},
    {"embedding_scale", "1"},
    {"scale_emb", "1"},
    // The loss of a causal language model, and the label that it leaves out.
    {"loss_type", "\"ForCausalLM\""},
    {"loss_type", "\"ForCausalLMLoss\""},
    {"ignore_index", "-100"},
};

// Probabilities of dropout. Weights and outputs do not depend on them, and trainctl trains without dropout.
constexpr absl::string_view kDropouts[] = {
    "attention_dropout",
    "hidden_dropout",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "attn_dropout_prob",
    "emb_dropout_prob",
    "resid_pdrop",
    "embd_pdrop",
    "attn_pdrop",
    "resid_dropout",
    "residual_dropout",
    "embedding_dropout",
    "embed_dropout",
    "activation_dropout",
    "dropout",
};

bool IsDropoutName(const std::string& name) {
  return std::find(std::begin(kDropouts), std::end(kDropouts), name) != std::end(kDropouts);
}

bool IsProbability(const Json& value) {
  return value.is_number() && value.get<double>() >= 0 && value.get<double>() < 1;
}

const std::vector<Json>& NeutralValues(const std::string& name) {
  static const auto* values = [] {
    auto* made = new std::map<std::string, std::vector<Json>>;
    for (const NeutralValue& row : kNeutralValues) (*made)[row.name].push_back(ParseValidJson(row.value));
    return made;
  }();
  static const auto* none = new std::vector<Json>;
  const auto found = values->find(name);
  return found == values->end() ? *none : found->second;
}

// Code in the folder replaces that of transformers. Code of a tokenizer does not affect the model.
bool NamesOnlyTokenizers(const Json& auto_map) {
  for (const auto& [key, value] : auto_map.items()) {
    if (key != "AutoTokenizer" && key != "AutoProcessor") return false;
  }
  return auto_map.is_object();
}

}  // namespace

bool IsNeutral(const std::string& name, const Json& value) {
  if (value.is_null() || NeutralNames().contains(name)) return true;
  if (name == "auto_map") return NamesOnlyTokenizers(value);
  if (IsDropoutName(name)) return IsProbability(value);
  for (const Json& neutral : NeutralValues(name)) {
    if (value == neutral) return true;
  }
  return false;
}

bool IsDropout(const std::string& name, const Json& value) {
  return IsDropoutName(name) && IsProbability(value) && value != 0;
}

std::string NeutralValuesOf(const std::string& name) {
  if (IsDropoutName(name)) return "a number of at least 0 and less than 1";
  return absl::StrJoin(NeutralValues(name), " or ",
                       [](std::string* out, const Json& value) { out->append(FormatJson(value)); });
}

}  // namespace trainctl::model
