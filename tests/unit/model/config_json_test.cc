#include "model/config_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "base/status.h"
#include "model/parameters.h"

namespace trainctl::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Published {
  const char* name;
  const char* config;  // the sizes of its config.json
  double parameters;   // in all, as its model card or the index of its weights says
  double active;       // 0: not compared
};

// Totals: the sum of the tensors in the published weights (safetensors metadata on the model's page), of
// DeepSeek-V3 without its layer that predicts a further token (671B in arXiv 2412.19437).
constexpr Published kPublished[] = {
    {"meta-llama/Llama-3.1-8B",
     R"({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "attention_bias": false,
         "mlp_bias": false, "tie_word_embeddings": false})",
     8030261248, 8030261248},
    {"mistralai/Mistral-7B-v0.1",
     R"({"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "sliding_window": 4096})",
     7241732096, 0},
    {"Qwen/Qwen2.5-7B",
     R"({"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
         "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064})",
     7615616512, 0},
    {"Qwen/Qwen2.5-0.5B, tied",
     R"({"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
         "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936,
         "tie_word_embeddings": true})",
     494032768, 0},
    {"mistralai/Mixtral-8x7B-v0.1",
     R"({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "num_local_experts": 8,
         "num_experts_per_tok": 2})",
     46702792704, 12.9e9},
    {"Qwen/Qwen3-30B-A3B",
     R"({"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48,
         "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
         "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1,
         "mlp_only_layers": [], "attention_bias": false})",
     30532122624, 3.3e9},
    {"Qwen/Qwen1.5-MoE-A2.7B",
     R"({"model_type": "qwen2_moe", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24,
         "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 151936, "num_experts": 60,
         "num_experts_per_tok": 4, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632})",
     14315784192, 2.7e9},
    {"deepseek-ai/DeepSeek-V2-Lite",
     R"({"model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944, "num_hidden_layers": 27,
         "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 102400, "q_lora_rank": null,
         "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
         "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
         "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "moe_layer_freq": 1})",
     15706484224, 2.7e9},
    {"deepseek-ai/DeepSeek-V2",
     R"({"model_type": "deepseek_v2", "hidden_size": 5120, "intermediate_size": 12288, "num_hidden_layers": 60,
         "num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 102400, "q_lora_rank": 1536,
         "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
         "n_routed_experts": 160, "n_shared_experts": 2, "num_experts_per_tok": 6,
         "moe_intermediate_size": 1536, "first_k_dense_replace": 1, "moe_layer_freq": 1})",
     235741434880, 21e9},
    {"deepseek-ai/DeepSeek-V3",
     R"({"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61,
         "num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 129280, "q_lora_rank": 1536,
         "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
         "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
         "moe_intermediate_size": 2048, "first_k_dense_replace": 3, "moe_layer_freq": 1,
         "num_nextn_predict_layers": 1})",
     671026419200, 37e9},
    {"openai-community/gpt2",
     R"({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
         "vocab_size": 50257, "n_inner": null})",
     124439808, 0},
    {"bigscience/bloom",
     R"({"model_type": "bloom", "hidden_size": 14336, "n_layer": 70, "num_attention_heads": 112,
         "vocab_size": 250880})",
     176247271424, 0},
    {"facebook/opt-125m",
     R"({"model_type": "opt", "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12,
         "num_attention_heads": 12, "max_position_embeddings": 2048, "vocab_size": 50272,
         "word_embed_proj_dim": 768})",
     125239296, 0},
    {"EleutherAI/pythia-6.9b",
     R"({"model_type": "gpt_neox", "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 32,
         "num_attention_heads": 32, "vocab_size": 50432, "tie_word_embeddings": false})",
     6857302016, 0},
    {"google/gemma-7b",
     R"({"model_type": "gemma", "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28,
         "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256, "vocab_size": 256000})",
     8537680896, 0},
    {"EleutherAI/gpt-j-6b",
     R"({"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "n_positions": 2048,
         "rotary": true, "rotary_dim": 64, "vocab_size": 50400, "tie_word_embeddings": false})",
     6050882784, 0},
    {"bigcode/starcoder",
     R"({"model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40, "n_head": 48, "n_inner": 24576,
         "n_positions": 8192, "vocab_size": 49152, "multi_query": true})",
     15517456384, 0},
    {"tiiuae/falcon-7b",
     R"({"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
         "vocab_size": 65024, "multi_query": true, "new_decoder_architecture": false, "parallel_attn": true,
         "bias": false})",
     6921720704, 0},
    {"LGAI-EXAONE/EXAONE-3.0-7.8B-Instruct",
     R"({"model_type": "exaone", "hidden_size": 4096, "intermediate_size": 14336, "num_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 102400,
         "layer_norm_epsilon": 1e-05, "embed_dropout": 0.0, "rope_theta": 500000.0,
         "tie_word_embeddings": false, "auto_map": {"AutoConfig": "configuration_exaone.ExaoneConfig",
         "AutoModelForCausalLM": "modeling_exaone.ExaoneForCausalLM"}})",
     7818448896, 0},
    {"microsoft/Phi-3-mini-4k-instruct",
     R"({"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32064, "attention_bias": false,
         "sliding_window": 2047, "full_attn_mod": 1, "interpolate_factor": 1,
         "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config",
         "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"}})",
     3821079552, 0},
    {"allenai/OLMo-2-1124-7B",
     R"({"model_type": "olmo2", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 100352, "rms_norm_eps": 1e-06,
         "rope_theta": 500000, "attention_bias": false})",
     7298617344, 0},
    {"internlm/internlm2-7b",
     R"({"model_type": "internlm2", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 92544, "bias": false,
         "rope_scaling": {"type": "dynamic", "factor": 2.0}, "max_position_embeddings": 32768,
         "tie_word_embeddings": false, "auto_map": {"AutoConfig": "configuration_internlm2.InternLM2Config",
         "AutoModelForCausalLM": "modeling_internlm2.InternLM2ForCausalLM"}})",
     7737708544, 0},
};

TEST(ConfigJson, HasThePublishedNumberOfParameters) {
  for (const Published& published : kPublished) {
    const absl::StatusOr<ConfigModel> model = ReadConfigJson(published.config, "config.json");
    ASSERT_TRUE(model.ok()) << published.name << ": " << model.status();
    const auto total = static_cast<double>(NumParameters(model->spec));
    EXPECT_NEAR(total / published.parameters, 1, 1e-3) << published.name << " has " << total;
    if (published.active > 0) {
      // Told with two digits.
      const auto active = static_cast<double>(NumActiveParameters(model->spec));
      EXPECT_NEAR(active / published.active, 1, 0.05) << published.name << " has " << active << " active";
    }
  }
}

// What transformers 4.57.6 counts in tiny models of each family: sum(p.numel() for p in
// AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **sizes, **fields)).parameters()), made
// on PyTorch's meta device.
constexpr char kSizes[] =
    R"("hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
       "num_key_value_heads": 2, "vocab_size": 97, )";
struct Tiny {
  const char* sizes;  // kSizes, or "" for a family that names its own
  const char* fields;
  int64_t parameters;
};
constexpr Tiny kTiny[] = {
    {"", R"("model_type": "bloom", "hidden_size": 48, "vocab_size": 97, "n_layer": 3, "n_head": 4,
          "tie_word_embeddings": true)",
     89664},
    {kSizes, R"("model_type": "deepseek_v2", "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim":
          12, "qk_rope_head_dim": 4, "v_head_dim": 12, "n_routed_experts": 8, "num_experts_per_tok":
          2, "moe_intermediate_size": 20, "n_shared_experts": 1, "first_k_dense_replace": 1,
          "n_group": 1, "topk_group": 1, "tie_word_embeddings": false)",
     96360},
    {kSizes, R"("model_type": "deepseek_v2", "q_lora_rank": null, "kv_lora_rank": 16, "qk_nope_head_dim":
          12, "qk_rope_head_dim": 4, "v_head_dim": 12, "n_routed_experts": 8, "num_experts_per_tok":
          2, "moe_intermediate_size": 20, "n_shared_experts": 1, "first_k_dense_replace": 1,
          "n_group": 1, "topk_group": 1, "tie_word_embeddings": false)",
     97440},
    {kSizes, R"("model_type": "deepseek_v3", "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim":
          12, "qk_rope_head_dim": 4, "v_head_dim": 12, "n_routed_experts": 8, "num_experts_per_tok":
          2, "moe_intermediate_size": 20, "n_shared_experts": 1, "first_k_dense_replace": 1,
          "n_group": 1, "topk_group": 1, "num_nextn_predict_layers": 0, "tie_word_embeddings": false)",
     96360},
    {kSizes, R"("model_type": "deepseek_v3", "q_lora_rank": null, "kv_lora_rank": 16, "qk_nope_head_dim":
          12, "qk_rope_head_dim": 4, "v_head_dim": 12, "n_routed_experts": 8, "num_experts_per_tok":
          2, "moe_intermediate_size": 20, "n_shared_experts": 1, "first_k_dense_replace": 1,
          "n_group": 1, "topk_group": 1, "num_nextn_predict_layers": 0, "tie_word_embeddings": false)",
     97440},
    {kSizes, R"("model_type": "gemma", "head_dim": 12, "tie_word_embeddings": true)", 60288},
    {kSizes, R"("model_type": "gemma2", "head_dim": 12, "tie_word_embeddings": true)", 60576},
    {kSizes, R"("model_type": "gemma3_text", "head_dim": 12, "tie_word_embeddings": true)", 60648},
    {"", R"("model_type": "gpt2", "vocab_size": 97, "n_embd": 48, "n_layer": 3, "n_head": 4,
          "n_positions": 64, "tie_word_embeddings": true)",
     92640},
    {"", R"("model_type": "gpt_neox", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers":
          3, "num_attention_heads": 4, "vocab_size": 97, "tie_word_embeddings": false)",
     61632},
    {"", R"("model_type": "gpt_neox", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers":
          3, "num_attention_heads": 4, "vocab_size": 97, "attention_bias": false,
          "tie_word_embeddings": false)",
     61056},
    {kSizes, R"("model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 12,
          "tie_word_embeddings": false)",
     172152},
    {"", R"("model_type": "falcon", "hidden_size": 48, "ffn_hidden_size": 80, "num_hidden_layers": 3,
          "num_attention_heads": 4, "vocab_size": 97)",
     45360},
    {"", R"("model_type": "falcon", "hidden_size": 48, "ffn_hidden_size": 80, "num_hidden_layers": 3,
          "num_attention_heads": 4, "vocab_size": 97, "multi_query": false)",
     55728},
    {"", R"("model_type": "falcon", "hidden_size": 48, "ffn_hidden_size": 80, "num_hidden_layers": 3,
          "num_attention_heads": 4, "vocab_size": 97, "new_decoder_architecture": true, "num_kv_heads": 2,
          "num_ln_in_parallel_attn": 1)",
     48816},
    {"", R"("model_type": "falcon", "hidden_size": 48, "ffn_hidden_size": 80, "num_hidden_layers": 3,
          "num_attention_heads": 4, "vocab_size": 97, "new_decoder_architecture": true, "num_kv_heads": 2,
          "bias": true)",
     49920},
    {"", R"("model_type": "gpt_bigcode", "vocab_size": 97, "n_embd": 48, "n_layer": 3, "n_head": 4,
          "n_positions": 64, "tie_word_embeddings": true)",
     82056},
    {"", R"("model_type": "gpt_bigcode", "vocab_size": 97, "n_embd": 48, "n_layer": 3, "n_head": 4,
          "n_positions": 64, "multi_query": false, "tie_word_embeddings": true)",
     92640},
    {"", R"("model_type": "gptj", "vocab_size": 97, "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions":
          64, "rotary_dim": 4, "tie_word_embeddings": false)",
     93457},
    {kSizes, R"("model_type": "granite", "tie_word_embeddings": false)", 64944},
    {kSizes, R"("model_type": "granitemoehybrid", "shared_intermediate_size": 80, "num_local_experts": 0,
          "layer_types": ["attention", "attention", "attention"], "position_embedding_type": "rope",
          "tie_word_embeddings": false)",
     64944},
    {kSizes, R"("model_type": "granite", "attention_bias": true, "mlp_bias": true, "tie_word_embeddings":
          false)",
     66000},
    {kSizes, R"("model_type": "internlm3", "head_dim": 12, "tie_word_embeddings": false)", 64944},
    {kSizes, R"("model_type": "llama", "tie_word_embeddings": false)", 64944},
    {kSizes, R"("model_type": "llama", "attention_bias": true, "mlp_bias": true, "tie_word_embeddings":
          false)",
     66000},
    {kSizes, R"("model_type": "llama", "tie_word_embeddings": true)", 60288},
    {kSizes, R"("model_type": "mistral", "tie_word_embeddings": false)", 64944},
    {kSizes, R"("model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2,
          "tie_word_embeddings": false)",
     169200},
    {"", R"("model_type": "mpt", "vocab_size": 97, "d_model": 48, "n_layers": 3, "n_heads": 4,
          "max_seq_len": 64, "tie_word_embeddings": true)",
     87936},
    {kSizes, R"("model_type": "olmo2", "tie_word_embeddings": false)", 65160},
    {kSizes, R"("model_type": "olmo2", "attention_bias": true, "tie_word_embeddings": false)", 65592},
    {kSizes, R"("model_type": "olmoe", "num_experts": 8, "num_experts_per_tok": 2, "tie_word_embeddings":
          false)",
     308232},
    {"", R"("model_type": "opt", "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
          "vocab_size": 97, "max_position_embeddings": 64, "ffn_dim": 80, "word_embed_proj_dim": 48,
          "tie_word_embeddings": true)",
     60144},
    {"", R"("model_type": "opt", "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
          "vocab_size": 97, "max_position_embeddings": 64, "ffn_dim": 80, "word_embed_proj_dim": 48,
          "enable_bias": false, "tie_word_embeddings": true)",
     59184},
    {kSizes, R"("model_type": "phi", "tie_word_embeddings": false)", 54385},
    {kSizes, R"("model_type": "phi", "qk_layernorm": true, "tie_word_embeddings": false)", 54529},
    {kSizes, R"("model_type": "phi", "tie_word_embeddings": true)", 49729},
    {kSizes, R"("model_type": "phi3", "tie_word_embeddings": false)", 64944},
    {kSizes, R"("model_type": "qwen2", "tie_word_embeddings": false)", 65232},
    {kSizes, R"("model_type": "qwen2_moe", "num_experts": 8, "num_experts_per_tok": 2,
          "moe_intermediate_size": 20, "shared_expert_intermediate_size": 40, "decoder_sparse_step":
          1, "tie_word_embeddings": false)",
     118368},
    {kSizes, R"("model_type": "qwen2_moe", "num_experts": 8, "num_experts_per_tok": 2,
          "moe_intermediate_size": 20, "shared_expert_intermediate_size": 40, "decoder_sparse_step":
          1, "qkv_bias": false, "tie_word_embeddings": false)",
     118080},
    {kSizes, R"("model_type": "qwen3", "head_dim": 12, "tie_word_embeddings": false)", 65016},
    {kSizes, R"("model_type": "qwen3", "head_dim": 12, "attention_bias": true, "tie_word_embeddings":
          false)",
     65448},
    {kSizes, R"("model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2,
          "moe_intermediate_size": 20, "head_dim": 12, "decoder_sparse_step": 1,
          "tie_word_embeddings": false)",
     100728},
    {kSizes, R"("model_type": "smollm3", "tie_word_embeddings": true)", 60288},
    {kSizes, R"("model_type": "starcoder2", "tie_word_embeddings": true)", 49920},
    {kSizes, R"("model_type": "starcoder2", "use_bias": false, "tie_word_embeddings": true)", 49104},
};

TEST(ConfigJson, HasTheParametersThatTransformersCounts) {
  for (const Tiny& tiny : kTiny) {
    const absl::StatusOr<ConfigModel> model =
        ReadConfigJson(absl::StrCat("{", tiny.sizes, tiny.fields, "}"), "config.json");
    ASSERT_TRUE(model.ok()) << tiny.fields << ": " << model.status();
    EXPECT_EQ(NumParameters(model->spec), tiny.parameters) << tiny.fields;
  }
}

TEST(ConfigJson, WindowsAreThoseOfTheFamily) {
  const absl::StatusOr<ConfigModel> mistral = ReadConfigJson(kPublished[1].config, "config.json");
  ASSERT_TRUE(mistral.ok());
  EXPECT_EQ(WindowOf(mistral->spec), 4096);
  EXPECT_EQ(WindowShare(mistral->spec), 1);
  const auto share = [](const char* more) {
    const absl::StatusOr<ConfigModel> model = ReadConfigJson(
        absl::StrCat(
            R"({"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 24, "vocab_size": 1000,
                         "num_attention_heads": 8, "sliding_window": 512, )",
            more, "}"),
        "config.json");
    EXPECT_TRUE(model.ok()) << model.status();
    return WindowOf(model->spec) == 0 ? 0 : WindowShare(model->spec);
  };
  EXPECT_EQ(share(R"("model_type": "llama")"), 0) << "it has none, whatever the file says";
  EXPECT_EQ(share(R"("model_type": "qwen2")"), 0) << "its files name a window that is off";
  EXPECT_EQ(share(R"("model_type": "qwen2", "use_sliding_window": true, "max_window_layers": 18)"), 0.25);
  EXPECT_EQ(share(R"("model_type": "gemma2")"), 0.5);
  EXPECT_DOUBLE_EQ(share(R"("model_type": "gemma3_text")"), 5.0 / 6);
  EXPECT_DOUBLE_EQ(
      share(R"("model_type": "gemma3_text", "layer_types": ["sliding_attention", "full_attention"])"), 0.5);
}

// In transformers, a layer of Gemma 3 has no window if its number, counted from 1, is a multiple of six.
TEST(ConfigJson, EachLayerHasAWindowOrNone) {
  const absl::StatusOr<ConfigModel> gemma = ReadConfigJson(
      R"({"model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 62,
          "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "vocab_size": 262208,
          "sliding_window": 1024})",
      "config.json");
  ASSERT_TRUE(gemma.ok()) << gemma.status();
  EXPECT_EQ(WindowShare(gemma->spec), 52.0 / 62);
  for (int64_t layer = 0; layer < 62; ++layer)
    EXPECT_EQ(LayerAt(gemma->spec, layer).attention.window, layer % 6 == 5 ? 0 : 1024) << layer;
}

TEST(ConfigJson, NormsAndLayersBeyondTheUsualAreRead) {
  const absl::StatusOr<ConfigModel> gemma = ReadConfigJson(
      R"({"model_type": "gemma2", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 24,
          "num_attention_heads": 8, "vocab_size": 1000})",
      "config.json");
  ASSERT_TRUE(gemma.ok()) << gemma.status();
  EXPECT_EQ(NormPlacesOf(gemma->spec), NormPlaces::kBeforeAndAfter);
  for (const Published& published : kPublished) {
    const Architecture spec = ReadConfigJson(published.config, "config.json")->spec;
    EXPECT_EQ(spec.mtp_layers, absl::string_view(published.name) == "deepseek-ai/DeepSeek-V3" ? 1 : 0);
    const bool has_shared = spec.family == "gptj" || spec.family == "falcon";
    EXPECT_EQ(NormPlacesOf(spec), spec.family == "gpt_neox" ? NormPlaces::kParallel
                                  : spec.family == "olmo2"  ? NormPlaces::kAfter
                                  : has_shared              ? NormPlaces::kShared
                                                            : NormPlaces::kBefore)
        << published.name;
  }
}

// One reader: what it reads is trained if, and only if, the spec has no feature that the trainer lacks.
TEST(ConfigJson, TrainingRefusesWhatTheTrainerLacks) {
  int trained = 0;
  for (const Published& published : kPublished) {
    const absl::StatusOr<ConfigModel> model = ReadConfigJson(published.config, "config.json");
    ASSERT_TRUE(model.ok()) << published.name << ": " << model.status();
    const absl::StatusOr<Architecture> spec = FromHuggingFaceConfig(published.config, "config.json");
    const std::vector<std::string> types = TrainedModelTypes();
    const bool is_ours = std::find(types.begin(), types.end(), model->model_type) != types.end();
    EXPECT_EQ(spec.ok(), is_ours) << published.name << ": " << spec.status();
    EXPECT_EQ(WhyNotTrainable(model->spec).empty(), is_ours) << published.name;
    if (spec.ok()) {
      ++trained;
      EXPECT_EQ(*spec, model->spec) << published.name;
    } else {
      EXPECT_EQ(ExitCodeFor(spec.status()), ExitCode::kBadData);
      EXPECT_THAT(std::string(spec.status().message()),
                  HasSubstr(absl::StrCat("model.family = \"", model->model_type, "\" (model_type)")));
    }
  }
  EXPECT_EQ(trained, 15);
  const absl::Status mixtral = FromHuggingFaceConfig(kPublished[4].config, "config.json").status();
  EXPECT_THAT(std::string(mixtral.message()), HasSubstr("routed experts (num_experts, num_local_experts"));
}

TEST(ConfigJson, DropoutsThatAreOnAreListed) {
  constexpr char kFormat[] = R"({"model_type": "$0", "hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100, "n_positions": 8, "ffn_dim": 96,
      "num_local_experts": 0, "position_embedding_type": "rope", "layer_types": ["attention", "attention"],
      "resid_pdrop": 0.0, "attention_dropout": 0.1, "embd_pdrop": null, "residual_dropout": 0.25})";
  const auto dropouts = [&](const char* type) {
    return ReadConfigJson(absl::Substitute(kFormat, type), "config.json")->dropouts;
  };
  for (const std::string& type : TrainedModelTypes()) {
    EXPECT_THAT(dropouts(type.c_str()), ElementsAre("attention_dropout = 0.1", "residual_dropout = 0.25"));
  }
  EXPECT_THAT(dropouts("mpt"), ElementsAre()) << "trainctl does not train it";
}

// A price does not need what training asks for.
TEST(ConfigJson, FieldsThatOnlyTrainingAsksForAreKeptAsReasons) {
  const absl::StatusOr<ConfigModel> model = ReadConfigJson(
      R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
          "num_attention_heads": 4, "vocab_size": 100, "hidden_act": "mish", "rms_norm_eps": "small",
          "rope_scaling": {"rope_type": "proportional", "factor": 2.0}, "logit_scale": 2.0, "n_embd": 64})",
      "config.json");
  ASSERT_TRUE(model.ok()) << model.status();
  const std::string reasons = absl::StrJoin(model->unknown_fields, "\n");
  for (const char* field : {"'hidden_act' is \"mish\"", "'rms_norm_eps' is \"small\"", "'logit_scale'",
                            "rope_scaling: field 'rope_type' is \"proportional\"", "'n_embd'"}) {
    EXPECT_THAT(reasons, HasSubstr(field));
  }
}

std::string ErrorOf(const char* text) {
  const absl::StatusOr<ConfigModel> model = ReadConfigJson(text, "m/config.json");
  if (model.ok()) return "OK";
  EXPECT_EQ(ExitCodeFor(model.status()), ExitCode::kBadData);
  return std::string(model.status().message());
}

TEST(ConfigJson, NamesTheFieldThatIsWrong) {
  EXPECT_THAT(ErrorOf(R"({"model_type": "mamba"})"),
              HasSubstr("m/config.json: field 'model_type' is \"mamba\" but must be one of arcee, bloom, "));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("must be a JSON object"));
  EXPECT_THAT(ErrorOf("{"), HasSubstr("m/config.json"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
                          "vocab_size": 100, "intermediate_size": 5})"),
              HasSubstr("field 'num_hidden_layers' is absent but must be a whole number of at least 1"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
                          "num_hidden_layers": 0, "vocab_size": 100, "intermediate_size": 5})"),
              HasSubstr("field 'num_hidden_layers' is 0 but"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 5,
                          "num_hidden_layers": 1, "vocab_size": 100, "intermediate_size": 5})"),
              HasSubstr("field 'num_attention_heads' is 5 but must be a divisor of hidden_size"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "llama", "hidden_size": "big", "num_attention_heads": 5,
                          "num_hidden_layers": 1, "vocab_size": 100, "intermediate_size": 5})"),
              HasSubstr("field 'hidden_size' is \"big\""));
  EXPECT_THAT(ErrorOf(R"({"model_type": "llama", "hidden_size": 1e30, "num_attention_heads": 5,
                          "num_hidden_layers": 1, "vocab_size": 100, "intermediate_size": 5})"),
              HasSubstr("field 'hidden_size'"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "qwen3_moe", "hidden_size": 64, "num_attention_heads": 4,
                          "num_hidden_layers": 4, "vocab_size": 100, "intermediate_size": 5, "num_experts": 4,
                          "num_experts_per_tok": 2, "mlp_only_layers": [2]})"),
              HasSubstr("field 'mlp_only_layers' is [2] but must be the leading layers"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "mixtral", "hidden_size": 64, "num_attention_heads": 4,
                          "num_hidden_layers": 4, "vocab_size": 100, "intermediate_size": 5,
                          "num_local_experts": 4, "num_experts_per_tok": 9})"),
              HasSubstr("a token visits 9 of 4 experts"));
}

// Covers every family, including those with windows in some layers.
TEST(ConfigJson, LayersThatAreMissingAreNamed) {
  for (const std::string& type : ConfigModelTypes()) {
    for (const char* layers : {"", R"("num_hidden_layers": 0,)", R"("num_hidden_layers": "32",)"}) {
      const std::string text = absl::StrCat(
          "{", layers, R"("hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100, "sliding_window": 8,
                          "use_sliding_window": true, "model_type": ")",
          type, "\"}");
      EXPECT_THAT(ErrorOf(text.c_str()), HasSubstr("field 'num_hidden_layers' is ")) << text;
    }
  }
}

// If a caller asks for more layers than the file has, the others follow the family's rules.
TEST(ConfigJson, MoreLayersFollowTheRulesOfTheFamily) {
  const auto read = [](const std::string& fields, int64_t least_layers) {
    const absl::StatusOr<ConfigModel> model =
        ReadConfigJson(absl::StrCat(R"({"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
                         "vocab_size": 100, "sliding_window": 8, )",
                                    fields, "}"),
                       "config.json", least_layers);
    EXPECT_TRUE(model.ok()) << model.status();
    return model->spec;
  };
  const std::string experts = R"("num_experts": 4, "num_experts_per_tok": 2, "first_k_dense_replace": 2, )";
  const std::string latent =
      R"("kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, )";
  for (const char* family :
       {R"("model_type": "gpt_oss", "num_experts": 4, "num_experts_per_tok": 2, )",
        R"("model_type": "gemma3_text", )", R"("model_type": "deepseek_v3", )",
        R"("model_type": "qwen2", "use_sliding_window": true, "max_window_layers": 4, )"}) {
    const bool is_deepseek = absl::StrContains(family, "deepseek");
    const std::string fields = absl::StrCat(is_deepseek ? absl::StrCat(experts, latent) : "", family);
    const Architecture all = read(absl::StrCat(fields, R"("num_hidden_layers": 24)"), 0);
    for (int layers = 2; layers <= 24; ++layers) {
      const std::string text = absl::StrCat(fields, "\"num_hidden_layers\": ", layers);
      EXPECT_EQ(read(text, 24), all) << text;
      EXPECT_EQ(NumLayers(read(text, 1)), layers) << "it has no fewer";
    }
  }
  const Architecture listed = read(
      R"("model_type": "gemma2", "num_hidden_layers": 2,
         "layer_types": ["full_attention", "full_attention"])",
      4);
  EXPECT_EQ(LayerAt(listed, 0).attention.window, 0);
  EXPECT_EQ(LayerAt(listed, 2).attention.window, 8);
  EXPECT_EQ(LayerAt(listed, 3).attention.window, 0);
}

TEST(ConfigJson, NormsWindowsAndClampsOfAFamilyAreRead) {
  const auto read = [](const char* text) { return ReadConfigJson(text, "config.json")->spec; };
  const Architecture qwen = read(
      R"({"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
          "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936})");
  EXPECT_EQ(AttentionOf(qwen).qk_norm, QkNorm::kHead);
  EXPECT_EQ(WindowOf(qwen), 0);
  const Architecture oss = read(
      R"({"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24,
          "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088,
          "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128,
          "rope_scaling": {"rope_type": "yarn", "factor": 32.0}})");
  EXPECT_EQ(WindowOf(oss), 128);
  EXPECT_EQ(WindowShare(oss), 0.5);
  EXPECT_TRUE(MlpOf(oss).clamped && HasAllLinearBiases(oss));
  ASSERT_TRUE(oss.rope.scaling.has_value());
  EXPECT_EQ(oss.rope.scaling->kind, RopeScalingKind::kYarn);
  EXPECT_EQ(AttentionOf(oss).qk_norm, QkNorm::kNone);
}

}  // namespace
}  // namespace trainctl::model
