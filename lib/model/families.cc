#include "model/families.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/string_view.h"

namespace trainctl::model {
namespace {

using kernels::Activation;
using kernels::Gain;
using kernels::RopePairs;

constexpr ParameterNames kLlamaNames = {.embedding = "model.embed_tokens",
                                        .layers = "model.layers.",
                                        .attention_norm = "input_layernorm",
                                        .query = "self_attn.q_proj",
                                        .key = "self_attn.k_proj",
                                        .value = "self_attn.v_proj",
                                        .query_norm = "self_attn.q_norm",
                                        .key_norm = "self_attn.k_norm",
                                        .attention_output = "self_attn.o_proj",
                                        .mlp_norm = "post_attention_layernorm",
                                        .gate = "mlp.gate_proj",
                                        .up = "mlp.up_proj",
                                        .down = "mlp.down_proj",
                                        .final_norm = "model.norm",
                                        .head = "lm_head"};

constexpr ParameterNames StarCoder2Names() {
  ParameterNames names = kLlamaNames;
  names.up = "mlp.c_fc";
  names.down = "mlp.c_proj";
  return names;
}
constexpr ParameterNames kStarCoder2Names = StarCoder2Names();

// Norms after attention and MLP too, under the names of Gemma 2.
constexpr ParameterNames Gemma2Names() {
  ParameterNames names = kLlamaNames;
  names.after_attention_norm = "post_attention_layernorm";
  names.mlp_norm = "pre_feedforward_layernorm";
  names.after_mlp_norm = "post_feedforward_layernorm";
  return names;
}
constexpr ParameterNames kGemma2Names = Gemma2Names();
constexpr ParameterNames kExaone4Names = kGemma2Names;  // without the norms before

constexpr ParameterNames HunYuanNames() {
  ParameterNames names = kLlamaNames;
  names.query_norm = "self_attn.query_layernorm";
  names.key_norm = "self_attn.key_layernorm";
  return names;
}
constexpr ParameterNames kHunYuanNames = HunYuanNames();

constexpr ParameterNames PhiNames() {
  ParameterNames names = kLlamaNames;
  names.attention_output = "self_attn.dense";
  names.up = "mlp.fc1";
  names.down = "mlp.fc2";
  names.final_norm = "model.final_layernorm";
  return names;
}
constexpr ParameterNames kPhiNames = PhiNames();

constexpr ParameterNames Glm4Names() {
  ParameterNames names = kLlamaNames;
  names.after_attention_norm = "post_self_attn_layernorm";
  names.after_mlp_norm = "post_mlp_layernorm";
  return names;
}
constexpr ParameterNames kGlm4Names = Glm4Names();

// Folders fuse queries, keys and values; only checkpoints use their separate names.
constexpr ParameterNames kGpt2Names = {.embedding = "transformer.wte",
                                       .layers = "transformer.h.",
                                       .attention_norm = "ln_1",
                                       .query = "attn.c_attn.q",
                                       .key = "attn.c_attn.k",
                                       .value = "attn.c_attn.v",
                                       .attention_output = "attn.c_proj",
                                       .mlp_norm = "ln_2",
                                       .up = "mlp.c_fc",
                                       .down = "mlp.c_proj",
                                       .final_norm = "transformer.ln_f",
                                       .head = "lm_head",
                                       .positions = "transformer.wpe"};
constexpr ParameterNames kGptNeoxNames = {.embedding = "gpt_neox.embed_in",
                                          .layers = "gpt_neox.layers.",
                                          .attention_norm = "input_layernorm",
                                          .query = "attention.query_key_value.q",
                                          .key = "attention.query_key_value.k",
                                          .value = "attention.query_key_value.v",
                                          .attention_output = "attention.dense",
                                          .mlp_norm = "post_attention_layernorm",
                                          .up = "mlp.dense_h_to_4h",
                                          .down = "mlp.dense_4h_to_h",
                                          .final_norm = "gpt_neox.final_layer_norm",
                                          .head = "embed_out"};

constexpr ParameterNames FalconNames() {
  ParameterNames names = kGptNeoxNames;
  names.embedding = "transformer.word_embeddings";
  names.layers = "transformer.h.";
  names.query = "self_attention.query_key_value.q";
  names.key = "self_attention.query_key_value.k";
  names.value = "self_attention.query_key_value.v";
  names.attention_output = "self_attention.dense";
  names.final_norm = "transformer.ln_f";
  names.head = "lm_head";
  return names;
}
constexpr ParameterNames kFalconNames = FalconNames();

constexpr ParameterNames Falcon40bNames() {
  ParameterNames names = kFalconNames;
  names.attention_norm = "ln_attn";
  names.mlp_norm = "ln_mlp";
  return names;
}
constexpr ParameterNames kFalcon40bNames = Falcon40bNames();

constexpr ParameterNames GptJNames() {
  ParameterNames names = kGpt2Names;
  names.query = "attn.q_proj";
  names.key = "attn.k_proj";
  names.value = "attn.v_proj";
  names.attention_output = "attn.out_proj";
  names.up = "mlp.fc_in";
  names.down = "mlp.fc_out";
  return names;
}
constexpr ParameterNames kGptJNames = GptJNames();

constexpr ParameterNames OptNames() {
  ParameterNames names = kLlamaNames;
  names.embedding = "model.decoder.embed_tokens";
  names.positions = "model.decoder.embed_positions";
  names.layers = "model.decoder.layers.";
  names.attention_norm = "self_attn_layer_norm";
  names.attention_output = "self_attn.out_proj";
  names.mlp_norm = "final_layer_norm";  // of the layer
  names.up = "fc1";
  names.down = "fc2";
  names.final_norm = "model.decoder.final_layer_norm";
  return names;
}
constexpr ParameterNames kOptNames = OptNames();

constexpr ParameterNames InternLm2Names() {
  ParameterNames names = kLlamaNames;
  names.embedding = "model.tok_embeddings";
  names.attention_norm = "attention_norm";
  names.query = "attention.wqkv.q";
  names.key = "attention.wqkv.k";
  names.value = "attention.wqkv.v";
  names.attention_output = "attention.wo";
  names.mlp_norm = "ffn_norm";
  names.gate = "feed_forward.w1";
  names.up = "feed_forward.w3";
  names.down = "feed_forward.w2";
  names.head = "output";
  return names;
}
constexpr ParameterNames kInternLm2Names = InternLm2Names();

constexpr ParameterNames ExaoneNames() {
  ParameterNames names = kGpt2Names;
  names.query = "attn.attention.q_proj";
  names.key = "attn.attention.k_proj";
  names.value = "attn.attention.v_proj";
  names.attention_output = "attn.attention.out_proj";
  names.gate = "mlp.c_fc_0";
  names.up = "mlp.c_fc_1";
  return names;
}
constexpr ParameterNames kExaoneNames = ExaoneNames();

constexpr ParameterNames GraniteMoeHybridNames() {
  ParameterNames names = kLlamaNames;
  names.gate = "shared_mlp.input_linear.gate";  // in folders, input_linear has both
  names.up = "shared_mlp.input_linear.up";
  names.down = "shared_mlp.output_linear";
  return names;
}
constexpr ParameterNames kGraniteMoeHybridNames = GraniteMoeHybridNames();

constexpr ParameterNames VaultGemmaNames() {
  ParameterNames names = kLlamaNames;
  names.mlp_norm = "pre_feedforward_layernorm";
  return names;
}
constexpr ParameterNames kVaultGemmaNames = VaultGemmaNames();

// Families that extend others.

// transformers 4 computes this function, and transformers 5 the one of hidden_act.
constexpr FixedField kGemmaFields[] = {{"hidden_activation", "\"gelu_pytorch_tanh\""}};
constexpr Family kGemma = {.model_type = "gemma",
                           .models = "Gemma 1",
                           .activation = Activation::kGeluTanh,
                           .gain = Gain::kOnePlusWeight,
                           .bias = Bias::kAttentionByFile,
                           .tied_default = true,
                           .scales_embedding = true,
                           .max_position = 8192,
                           .head_dim = 256,
                           .states_activation = false,
                           .activation_alias = "gelu",
                           .fixed_fields = kGemmaFields,
                           .class_name = "GemmaForCausalLM",
                           .names = &kLlamaNames};

constexpr Family Gemma2() {
  Family family = kGemma;
  family.model_type = "gemma2";
  family.models = "Gemma 2";
  family.states_activation = true;
  family.activation_key = "hidden_activation";
  family.activation_alias = nullptr;
  family.fixed_fields = {};
  family.norms = NormPlaces::kBeforeAndAfter;
  family.windows = Windows::kEverySecond;
  family.window = 4096;
  family.attention_softcap = 50;
  family.logit_softcap = 30;
  family.states_attention_softcap = true;
  family.states_logit_softcap = true;
  family.score_scale = ScoreScale::kPreAttnScalar;
  family.class_name = "Gemma2ForCausalLM";
  family.names = &kGemma2Names;
  return family;
}

constexpr Family VaultGemma() {
  Family family = Gemma2();
  family.model_type = "vaultgemma";
  family.models = "VaultGemma";
  family.norms = NormPlaces::kBefore;
  family.class_name = "VaultGemmaForCausalLM";
  family.names = &kVaultGemmaNames;
  return family;
}

// The class in transformers does not read attn_logit_softcapping.
constexpr Family Gemma3() {
  Family family = Gemma2();
  family.model_type = "gemma3_text";
  family.models = "Gemma 3, text";
  family.qk_norm = QkNorm::kHead;
  family.windows = Windows::kPattern;
  family.max_position = 131072;
  family.rope_theta = 1000000;
  family.window_rope_theta = 10000;
  family.attention_softcap = 0;
  family.logit_softcap = 0;
  family.states_attention_softcap = false;
  family.class_name = "Gemma3ForCausalLM";
  return family;
}

constexpr Family kGlm = {.model_type = "glm",
                         .models = "GLM 4",
                         .bias = Bias::kQkv,
                         .bias_default = true,
                         .rope_pairs = RopePairs::kNeighbors,
                         .max_position = 131072,
                         .norm_eps = 1.5625e-7,
                         .rope_share = 0.5,
                         .head_dim = 128,
                         .qkv_bias_key = "attention_bias",
                         .folder_form = {.gate_up = "mlp.gate_up_proj"},
                         .class_name = "GlmForCausalLM",
                         .names = &kLlamaNames};

constexpr Family Glm4() {
  Family family = kGlm;
  family.model_type = "glm4";
  family.models = "GLM 4 0414";
  family.norms = NormPlaces::kBeforeAndAfter;
  family.class_name = "Glm4ForCausalLM";
  family.names = &kGlm4Names;
  return family;
}

constexpr Family kCohere = {.model_type = "cohere",
                            .models = "Command R",
                            .norm = NormKind::kLayer,
                            .norm_bias = false,
                            .bias = Bias::kAttentionByFile,
                            .tied_default = true,
                            .norms = NormPlaces::kShared,
                            .rope_pairs = RopePairs::kNeighbors,
                            .max_position = 8192,
                            .norm_eps = 1e-5,
                            .rope_theta = 500000,
                            .logit_multiplier = 0.0625,
                            .norm_eps_key = "layer_norm_eps",
                            .logit_multiplier_key = "logit_scale",
                            .class_name = "CohereForCausalLM",
                            .names = &kLlamaNames};

constexpr Family Cohere2() {
  Family family = kCohere;
  family.model_type = "cohere2";
  family.models = "Command R7B, Command A";
  family.windows = Windows::kPattern;
  family.window = 4096;
  family.window_period = 4;
  family.no_positions = NoPositions::kUnwindowed;
  family.rope_theta = 10000;
  family.has_head_dim = false;
  family.class_name = "Cohere2ForCausalLM";
  return family;
}

constexpr Family kOlmo2 = {.model_type = "olmo2",
                           .models = "OLMo 2",
                           .bias = Bias::kAttentionByFile,
                           .qk_norm = QkNorm::kWhole,
                           .norms = NormPlaces::kAfter,
                           .norm_eps = 1e-5,
                           .class_name = "Olmo2ForCausalLM",
                           .names = &kExaone4Names};

constexpr Family Olmo3() {
  Family family = kOlmo2;
  family.model_type = "olmo3";
  family.models = "OLMo 3";
  family.windows = Windows::kPattern;
  family.window = 4096;
  family.window_period = 4;
  family.rope_theta = 500000;
  family.window_rope_theta = 500000;
  family.window_rope_theta_key = nullptr;
  family.class_name = "Olmo3ForCausalLM";
  return family;
}

constexpr Family kGranite = {.model_type = "granite",
                             .models = "Granite 3, dense",
                             .bias = Bias::kByFile,
                             .states_multipliers = true,
                             .score_scale = ScoreScale::kMultiplier,
                             .class_name = "GraniteForCausalLM",
                             .names = &kLlamaNames};

// Models without experts and without Mamba layers use none of the other fields.
constexpr FixedField kGraniteMoeHybridFields[] = {
    {"num_local_experts", "0", /*is_required=*/true},
    {"position_embedding_type", "\"rope\"", /*is_required=*/true},
    {"normalization_function", "\"rmsnorm\""},
    {"intermediate_size", nullptr},  // of an expert
    {"num_experts_per_tok", nullptr},
    {"router_aux_loss_coef", nullptr},
    {"output_router_logits", nullptr},
    {"init_method", nullptr},
    {"mamba_chunk_size", nullptr},
    {"mamba_conv_bias", nullptr},
    {"mamba_d_conv", nullptr},
    {"mamba_d_head", nullptr},
    {"mamba_d_state", nullptr},
    {"mamba_expand", nullptr},
    {"mamba_n_groups", nullptr},
    {"mamba_n_heads", nullptr},
    {"mamba_proj_bias", nullptr},
    {"time_step_limit", nullptr},
};

constexpr Family GraniteMoeHybrid() {
  Family family = kGranite;
  family.model_type = "granitemoehybrid";
  family.models = "Granite 4, dense, without Mamba layers";
  family.bias = Bias::kAttentionByFile;
  family.ffn = 1024;
  family.has_head_dim = false;
  family.ffn_key = "shared_intermediate_size";
  family.fixed_fields = kGraniteMoeHybridFields;
  family.full_attention_name = "attention";
  family.folder_form = {.gate_up = "shared_mlp.input_linear"};
  family.class_name = "GraniteMoeHybridForCausalLM";
  family.names = &kGraniteMoeHybridNames;
  return family;
}

constexpr Family kGpt2 = {.model_type = "gpt2",
                          .models = "GPT-2",
                          .gated = false,
                          .activation = Activation::kGeluTanh,
                          .norm = NormKind::kLayer,
                          .bias = Bias::kAll,
                          .tied_default = true,
                          .learned_positions = true,
                          .max_position = 1024,
                          .norm_eps = 1e-5,
                          .has_usual_ffn = true,
                          .has_kv_heads = false,
                          .has_head_dim = false,
                          .norm_eps_key = "layer_norm_epsilon",
                          .activation_key = "activation_function",
                          .ffn_key = "n_inner",
                          .has_other_keys = true,
                          .folder_form = {.qkv = "attn.c_attn", .transposed = true},
                          .class_name = "GPT2LMHeadModel",
                          .names = &kGpt2Names};

// Settings of kernels and of the key-value cache.
constexpr FixedField kGptBigCodeFields[] = {
    {"attention_softmax_in_fp32", nullptr}, {"scale_attention_softmax_in_fp32", nullptr},
    {"inference_runner", nullptr},          {"validate_runner_input", nullptr},
    {"pre_allocate_kv_cache", nullptr},     {"pad_key_length", nullptr},
};

constexpr Family GptBigCode() {
  Family family = kGpt2;
  family.model_type = "gpt_bigcode";
  family.models = "StarCoder 1, SantaCoder";
  family.has_multi_query = true;
  family.fixed_fields = kGptBigCodeFields;
  family.folder_form = {.qkv = "attn.c_attn", .by_kv_head = true};
  family.class_name = "GPTBigCodeForCausalLM";
  return family;
}

// Only the first version of the class read `rotary`.
constexpr FixedField kGptJFields[] = {{"rotary", "true"}};

constexpr Family GptJ() {
  Family family = kGpt2;
  family.model_type = "gptj";
  family.models = "GPT-J";
  family.bias = Bias::kMlp;
  family.tied_default = false;
  family.learned_positions = false;
  family.norms = NormPlaces::kShared;
  family.head_bias = true;
  family.rope_pairs = RopePairs::kNeighbors;
  family.max_position = 2048;
  family.rope_share = 0.25;
  family.rotary_dim = 64;
  family.rotary_dim_key = "rotary_dim";
  family.fixed_fields = kGptJFields;
  family.folder_form = {};
  family.class_name = "GPTJForCausalLM";
  family.names = &kGptJNames;
  return family;
}

constexpr FixedField kGptNeoxFields[] = {{"use_parallel_residual", "true"}};
constexpr Family kGptNeox = {.model_type = "gpt_neox",
                             .models = "GPT-NeoX, Pythia",
                             .gated = false,
                             .activation = Activation::kGelu,
                             .norm = NormKind::kLayer,
                             .bias = Bias::kAll,
                             .norms = NormPlaces::kParallel,
                             .norm_eps = 1e-5,
                             .rope_share = 0.25,
                             .has_kv_heads = false,
                             .has_head_dim = false,
                             .norm_eps_key = "layer_norm_eps",
                             .rope_theta_key = "rotary_emb_base",
                             .rope_share_key = "rotary_pct",
                             .fixed_fields = kGptNeoxFields,
                             .folder_form = {.qkv = "attention.query_key_value", .by_kv_head = true},
                             .class_name = "GPTNeoXForCausalLM",
                             .names = &kGptNeoxNames};

constexpr FixedField kGptNeoxSequentialFields[] = {{"use_parallel_residual", "false", /*is_required=*/true}};
constexpr Family GptNeoxSequential() {
  Family family = kGptNeox;
  family.name = "gpt_neox_sequential";
  family.models = "RedPajama-INCITE, and other GPT-NeoX models with use_parallel_residual = false";
  family.norms = NormPlaces::kBefore;
  family.fixed_fields = kGptNeoxSequentialFields;
  return family;
}

constexpr FixedField kFalconFields[] = {{"parallel_attn", "true"},
                                        {"num_ln_in_parallel_attn", "1"},
                                        {"apply_residual_connection_post_layernorm", "false"}};
constexpr Family kFalcon = {.model_type = "falcon",
                            .models = "Falcon 7B and 11B",
                            .gated = false,
                            .activation = Activation::kGelu,
                            .norm = NormKind::kLayer,
                            .bias = Bias::kUseBias,
                            .tied_default = true,
                            .norms = NormPlaces::kShared,
                            .norm_eps = 1e-5,
                            .has_usual_ffn = true,
                            .has_multi_query = true,
                            .has_head_dim = false,
                            .norm_eps_key = "layer_norm_epsilon",
                            .activation_key = "activation",
                            .kv_heads_key = "num_kv_heads",
                            .grouped_query_key = "new_decoder_architecture",
                            .use_bias_key = "bias",
                            .ffn_key = "ffn_hidden_size",
                            .code_class = "FalconForCausalLM",
                            .fixed_fields = kFalconFields,
                            .folder_form = {.qkv = "self_attention.query_key_value", .by_kv_head = true},
                            .class_name = "FalconForCausalLM",
                            .names = &kFalconNames};

constexpr FixedField kFalcon40bFields[] = {{"new_decoder_architecture", "true", /*is_required=*/true},
                                           {"num_ln_in_parallel_attn", "2"},
                                           {"parallel_attn", "true"},
                                           {"apply_residual_connection_post_layernorm", "false"},
                                           {"multi_query", nullptr}};
constexpr Family Falcon40b() {
  Family family = kFalcon;
  family.name = "falcon_40b";
  family.models = "Falcon 40B and 180B";
  family.norms = NormPlaces::kParallel;
  family.has_multi_query = false;
  family.grouped_query_key = nullptr;
  family.fixed_fields = kFalcon40bFields;
  family.names = &kFalcon40bNames;
  return family;
}

// Other names of the same biases. transformers accepts all or none.
constexpr FixedField kInternLm3Fields[] = {
    {"attention_bias", "false"}, {"qkv_bias", "false"}, {"mlp_bias", "false"}, {"bias", "false"}};

constexpr FixedField kPhi3Fields[] = {{"full_attn_mod", "1"}, {"interpolate_factor", "1"}};

// The rest are fields of the group's other models, which the class does not read.
constexpr FixedField kHunYuanFields[] = {
    {"use_qk_norm", "true"},
    {"use_cla", "false"},
    {"use_rotary_pos_emb", "true"},
    {"mlp_bias", "false"},
    {"cla_share_factor", nullptr},
    {"attention_head_dim", nullptr},
    {"add_classification_head", nullptr},
    {"class_num", nullptr},
    {"dense_list", nullptr},
    {"pool_type", nullptr},
    {"org_vocab_size", nullptr},
    {"eod_token_id", nullptr},
    {"pad_id", nullptr},
    {"sep_id", nullptr},
    {"mask_init_id", nullptr},
    {"num_media_embeds", nullptr},
    {"im_start_id", nullptr},
    {"im_end_id", nullptr},
    {"im_newline_id", nullptr},
    {"text_start_id", nullptr},
    {"text_end_id", nullptr},
};

constexpr FixedField kOptFields[] = {
    {"do_layer_norm_before", "true"},
    {"_remove_final_layer_norm", "false"},
    {"layer_norm_elementwise_affine", "true"},
};

constexpr Family kFamilies[] = {
    {.model_type = "llama",
     .models = "Llama 1 to 3, and models with the same architecture",
     .bias = Bias::kByFile,
     .class_name = "LlamaForCausalLM",
     .names = &kLlamaNames},
    {.model_type = "mistral",
     .models = "Mistral",
     .windows = Windows::kAll,
     .window = 4096,
     .max_position = 131072,
     .class_name = "MistralForCausalLM",
     .names = &kLlamaNames},
    {.model_type = "ministral",
     .models = "Ministral 8B",
     .windows = Windows::kListed,
     .window = 4096,
     .max_position = 131072,
     .class_name = "MinistralForCausalLM",
     .names = &kLlamaNames},
    {.model_type = "mixtral", .models = "Mixtral", .windows = Windows::kAll, .mixture = Mixture::kRouted},
    {.model_type = "qwen2",
     .models = "Qwen 1.5, 2 and 2.5, dense",
     .bias = Bias::kQkv,
     .windows = Windows::kUpper,
     .window = 4096,
     .max_position = 32768,
     .class_name = "Qwen2ForCausalLM"},
    {.model_type = "qwen2_moe",
     .models = "Qwen 1.5 and 2, mixture of experts",
     .bias = Bias::kQkv,
     .gated_shared_experts = true,
     .windows = Windows::kUpper,
     .mixture = Mixture::kRouted},
    {.model_type = "qwen3",
     .models = "Qwen 3, dense",
     .bias = Bias::kAttentionByFile,
     .qk_norm = QkNorm::kHead,
     .windows = Windows::kUpper,
     .window = 4096,
     .max_position = 32768,
     .head_dim = 128,
     .class_name = "Qwen3ForCausalLM",
     .names = &kLlamaNames},
    {.model_type = "qwen3_moe",
     .models = "Qwen 3, mixture of experts",
     .bias = Bias::kByFile,
     .qk_norm = QkNorm::kHead,
     .windows = Windows::kUpper,
     .mixture = Mixture::kRouted},
    {.model_type = "deepseek_v2", .models = "DeepSeek V2", .mixture = Mixture::kLatent},
    {.model_type = "deepseek_v3", .models = "DeepSeek V3 and R1", .mixture = Mixture::kLatent},
    {.model_type = "kimi_k2", .models = "Kimi K2", .mixture = Mixture::kLatent},
    {.model_type = "olmoe", .models = "OLMoE", .qk_norm = QkNorm::kWhole, .mixture = Mixture::kRouted},
    {.model_type = "gpt_oss",
     .models = "gpt-oss",
     .bias = Bias::kAll,
     .expert_bias = true,
     .attention_sinks = true,
     .windows = Windows::kEverySecond,
     .mixture = Mixture::kRouted,
     .clamped_gate = true},
    kOlmo2,
    Olmo3(),
    {.model_type = "hunyuan_v1_dense",
     .models = "HunYuan, dense",
     .bias = Bias::kAttentionByFile,
     .qk_norm = QkNorm::kHeadAfterRope,
     .norm_eps = 1e-5,
     .has_rope_alpha = true,
     .fixed_fields = kHunYuanFields,
     .class_name = "HunYuanDenseV1ForCausalLM",
     .names = &kHunYuanNames},
    {.model_type = "smollm3",
     .models = "SmolLM 3",
     .bias = Bias::kByFile,
     .tied_default = true,
     .no_positions = NoPositions::kListed,
     .max_position = 32768,
     .rope_theta = 2000000,
     .class_name = "SmolLM3ForCausalLM",
     .names = &kLlamaNames},
    kGranite,
    GraniteMoeHybrid(),
    kGemma,
    Gemma2(),
    VaultGemma(),
    Gemma3(),
    {.model_type = "internlm2",
     .models = "InternLM 2 and 2.5",
     .bias = Bias::kAttentionByFile,
     .bias_default = true,
     .has_head_dim = false,
     .attention_bias_key = "bias",
     .code_class = "InternLM2ForCausalLM",
     .folder_form = {.qkv = "attention.wqkv", .by_kv_head = true},
     .class_name = "InternLM2ForCausalLM",
     .names = &kInternLm2Names},
    {.model_type = "phi3",
     .models = "Phi 3 to 4",
     .windows = Windows::kAll,
     .max_position = 4096,
     .norm_eps = 1e-5,
     .original_max_position = 4096,
     .states_rope_share = true,
     .code_class = "Phi3ForCausalLM",
     .fixed_fields = kPhi3Fields,
     .folder_form = {.qkv = "self_attn.qkv_proj", .gate_up = "mlp.gate_up_proj"},
     .class_name = "Phi3ForCausalLM",
     .names = &kLlamaNames},
    kGlm,
    Glm4(),
    {.model_type = "phi",
     .models = "Phi 1, 1.5 and 2",
     .gated = false,
     .activation = Activation::kGeluTanh,
     .norm = NormKind::kLayer,
     .bias = Bias::kAll,
     .norms = NormPlaces::kShared,
     .head_bias = true,
     .norm_eps = 1e-5,
     .rope_share = 0.5,
     .norm_eps_key = "layer_norm_eps",
     .class_name = "PhiForCausalLM",
     .names = &kPhiNames},
    kGpt2,
    GptBigCode(),
    GptJ(),
    kGptNeox,
    GptNeoxSequential(),
    kFalcon,
    Falcon40b(),
    {.model_type = "opt",
     .models = "OPT",
     .gated = false,
     .activation = Activation::kRelu,
     .norm = NormKind::kLayer,
     .bias = Bias::kUseBias,
     .bias_default = true,
     .tied_default = true,
     .learned_positions = true,
     .position_offset = 2,
     .norm_eps = 1e-5,
     .has_kv_heads = false,
     .has_head_dim = false,
     .norm_eps_key = nullptr,
     .init_std_key = "init_std",
     .activation_key = "activation_function",
     .use_bias_key = "enable_bias",
     .ffn_key = "ffn_dim",
     .fixed_fields = kOptFields,
     .class_name = "OPTForCausalLM",
     .names = &kOptNames},
    {.model_type = "bloom",
     .models = "BLOOM",
     .gated = false,
     .norm = NormKind::kLayer,
     .bias = Bias::kAll,
     .tied_default = true,
     .embedding_norm = true,
     .has_usual_ffn = true},
    {.model_type = "mpt",
     .models = "MPT",
     .gated = false,
     .bias = Bias::kUseBias,
     .tied_default = true,
     .has_usual_ffn = true},
    {.model_type = "starcoder2",
     .models = "StarCoder 2",
     .gated = false,
     .activation = Activation::kGeluTanh,
     .norm = NormKind::kLayer,
     .bias = Bias::kUseBias,
     .bias_default = true,
     .tied_default = true,
     .windows = Windows::kAll,
     .max_position = 4096,
     .norm_eps = 1e-5,
     .norm_eps_key = "norm_epsilon",
     .class_name = "Starcoder2ForCausalLM",
     .names = &kStarCoder2Names},
    kCohere,
    Cohere2(),
    {.model_type = "internlm3",
     .models = "InternLM 3",
     .max_position = 32768,
     .norm_eps = 1e-5,
     .head_dim = 128,
     .code_class = "InternLM3ForCausalLM",
     .fixed_fields = kInternLm3Fields,
     .class_name = "LlamaForCausalLM",
     .names = &kLlamaNames},
    {.model_type = "exaone",
     .models = "EXAONE 3 and 3.5",
     .tied_default = true,
     .norm_eps = 1e-5,
     .has_head_dim = false,
     .norm_eps_key = "layer_norm_epsilon",
     .activation_key = "activation_function",
     .has_other_keys = true,
     .code_class = "ExaoneForCausalLM",
     .class_name = "ExaoneForCausalLM",
     .names = &kExaoneNames},
    {.model_type = "exaone4",
     .models = "EXAONE 4",
     .qk_norm = QkNorm::kHead,
     .norms = NormPlaces::kAfter,
     .windows = Windows::kPattern,
     .window = 4096,
     .window_period = 4,
     .no_positions = NoPositions::kUnwindowedIfAny,
     .norm_eps = 1e-5,
     .class_name = "Exaone4ForCausalLM",
     .names = &kExaone4Names},
    {.model_type = "arcee",
     .models = "Arcee",
     .gated = false,
     .activation = Activation::kReluSquared,
     .bias = Bias::kByFile,
     .max_position = 4096,
     .norm_eps = 1e-5,
     .class_name = "ArceeForCausalLM",
     .names = &kLlamaNames},
    {.model_type = "nemotron",
     .models = "Nemotron, Minitron",
     .gated = false,
     .activation = Activation::kReluSquared,
     .norm = NormKind::kLayer,
     .gain = Gain::kOnePlusWeight,
     .bias = Bias::kByFile,
     .max_position = 4096,
     .norm_eps = 1e-5,
     .rope_share = 0.5,
     .norm_eps_key = "norm_eps",
     .class_name = "NemotronForCausalLM",
     .names = &kLlamaNames},
    {.model_type = "stablelm",
     .models = "StableLM",
     .norm = NormKind::kLayer,
     .bias = Bias::kQkv,
     .max_position = 4096,
     .norm_eps = 1e-5,
     .rope_share = 0.25,
     .has_head_dim = false,
     .norm_eps_key = "layer_norm_eps",
     .qkv_bias_key = "use_qkv_bias",
     .class_name = "StableLmForCausalLM",
     .names = &kLlamaNames},
    {.model_type = "helium",
     .models = "Helium",
     .bias = Bias::kQkv,
     .rope_pairs = RopePairs::kNeighbors,
     .max_position = 4096,
     .norm_eps = 1e-8,
     .rope_theta = 100000,
     .head_dim = 128,
     .qkv_bias_key = "attention_bias",
     .class_name = "HeliumForCausalLM",
     .names = &kLlamaNames},
    {.model_type = "ernie4_5",
     .models = "ERNIE 4.5, dense",
     .bias = Bias::kUseBias,
     .tied_default = true,
     .rope_pairs = RopePairs::kNeighbors,
     .max_position = 131072,
     .norm_eps = 1e-5,
     .rope_theta = 500000,
     .head_dim = 128,
     .class_name = "Ernie4_5ForCausalLM",
     .names = &kLlamaNames},
};

constexpr const char* kSiluNames[] = {"silu", "swish"};
constexpr const char* kGeluNames[] = {"gelu", "gelu_python"};
constexpr const char* kGeluTanhNames[] = {"gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu_accurate",
                                          "gelu_python_tanh"};
constexpr const char* kReluNames[] = {"relu"};
constexpr const char* kReluSquaredNames[] = {"relu2"};
constexpr Activation kActivations[] = {Activation::kSiLU, Activation::kGelu, Activation::kGeluTanh,
                                       Activation::kRelu, Activation::kReluSquared};

// Gives a model without layers one period of the family's default layers, if they are not all alike.
void AddDefaultLayerTypes(const Family& family, Architecture& spec) {
  const bool windowed = family.windows == Windows::kPattern || family.windows == Windows::kEverySecond;
  const bool listed = family.no_positions == NoPositions::kListed;
  if (!windowed && !listed) return;
  const int64_t period = listed                                ? kNoRopeLayerInterval
                         : family.windows == Windows::kPattern ? family.window_period
                                                               : 2;
  SetNumLayers(spec, period);
  std::vector<bool> is_usual(static_cast<size_t>(period), true);
  is_usual.back() = false;
  if (windowed) SetWindows(spec, family.window, is_usual);
  if (family.no_positions != NoPositions::kNone) SetRopes(spec, is_usual);
}

}  // namespace

absl::Span<const Family> Families() { return kFamilies; }

const Family* FindFamily(absl::string_view name) {
  for (const Family& family : kFamilies) {
    if (name == NameOf(family)) return &family;
  }
  return nullptr;
}

const Family* FindFamilyOf(const Architecture& spec) {
  const Attention& attention = AttentionOf(spec);
  const bool is_qwen2 = spec.family == "llama" && attention.qkv_bias && !attention.out_bias;
  return FindFamily(is_qwen2 ? "qwen2" : spec.family);
}

void ApplyFamily(const Family& family, Architecture& spec) {
  SetEach(spec, &Attention::qk_norm, family.qk_norm);
  SetEach(spec, &Attention::sinks, family.attention_sinks);
  SetEach(spec, &Mlp::gated, family.gated);
  SetEach(spec, &Mlp::activation, family.activation);
  SetEach(spec, &Mlp::clamped, family.clamped_gate);
  SetEach(spec, &Layer::norms, family.norms);
  spec.norm.kind = family.norm;
  spec.norm.bias = family.norm_bias;
  spec.norm.gain = family.gain;
  spec.rope.pairs = family.rope_pairs;
  spec.scales_embedding = family.scales_embedding;
  spec.position_offset = family.position_offset;
  spec.learned_positions = family.learned_positions ? spec.max_position + family.position_offset : 0;
  if (family.learned_positions) SetEach(spec, &Attention::rope, false);
  spec.embedding_norm = family.embedding_norm;
  spec.head_bias = family.head_bias;
}

Architecture BaseOfFamily(absl::string_view name) {
  Architecture spec;
  if (name == spec.family) return spec;
  const Family& family = *FindFamily(name);
  spec.family = NameOf(family);
  ApplyFamily(family, spec);
  if (family.bias == Bias::kAll || (family.bias == Bias::kUseBias && family.bias_default)) {
    SetAllLinearBiases(spec, true);
  }
  if (family.bias == Bias::kMlp) SetEach(spec, &Mlp::bias, true);
  spec.tie_embeddings = family.tied_default;
  SetMaxPosition(spec, family.max_position);
  spec.norm.eps = family.norm_eps;
  spec.rope.theta = family.rope_theta;
  spec.rope.share = family.rope_share;
  spec.window_rope_theta = family.window_rope_theta;
  spec.logit_multiplier = family.logit_multiplier;
  spec.logit_softcap = family.logit_softcap;
  SetEach(spec, &Attention::softcap, family.attention_softcap);
  if (family.score_scale == ScoreScale::kPreAttnScalar)
    SetEach(spec, &Attention::scale, 1 / std::sqrt(family.query_pre_attn_scalar));
  if (family.score_scale == ScoreScale::kMultiplier) SetEach(spec, &Attention::scale, 1);
  AddDefaultLayerTypes(family, spec);
  return spec;
}

bool StatesRopeShare(const Family& family) { return family.states_rope_share || family.rope_share != 1; }

std::vector<std::string> NamedFamilies() {
  std::vector<std::string> families;
  for (const Family& family : kFamilies) {
    if (family.names != nullptr) families.emplace_back(NameOf(family));
  }
  return families;
}

const ParameterNames* FindParameterNames(absl::string_view family) {
  const Family* row = FindFamily(family);
  return row == nullptr ? nullptr : row->names;
}

absl::Span<const char* const> NamesOf(Activation activation) {
  switch (activation) {
    case Activation::kSiLU:
      return kSiluNames;
    case Activation::kGelu:
      return kGeluNames;
    case Activation::kGeluTanh:
      return kGeluTanhNames;
    case Activation::kRelu:
      return kReluNames;
    case Activation::kReluSquared:
      return kReluSquaredNames;
  }
  return {};
}

std::optional<Activation> FindActivation(absl::string_view name) {
  for (const Activation activation : kActivations) {
    const absl::Span<const char* const> names = NamesOf(activation);
    if (std::find(names.begin(), names.end(), name) != names.end()) return activation;
  }
  return std::nullopt;
}

std::vector<std::string> ActivationNames() {
  std::vector<std::string> names;
  for (const Activation activation : kActivations) names.emplace_back(NamesOf(activation)[0]);
  return names;
}

}  // namespace trainctl::model
