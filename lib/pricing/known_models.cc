#include "pricing/known_models.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace trainctl::pricing {
namespace {

constexpr model::LatentAttention kDeepSeekV3Attention = {
    .query_rank = 1536, .key_value_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128};

const KnownModel kModels[] = {
    {"deepseekv3",
     "config.json of deepseek-ai/DeepSeek-V3",
     {.layers = 61,
      .hidden = 7168,
      .ffn = 18432,
      .heads = 128,
      .kv_heads = 128,
      .head_dim = 128,
      .vocab = 129280,
      .experts =
          model::Experts{.num_experts = 256, .top_k = 8, .ffn = 2048, .shared_ffn = 2048, .dense_layers = 3},
      .latent = kDeepSeekV3Attention}},
    {"kimik2",
     "config.json of moonshotai/Kimi-K2-Base",
     {.layers = 61,
      .hidden = 7168,
      .ffn = 18432,
      .heads = 64,
      .kv_heads = 64,
      .head_dim = 128,
      .vocab = 163840,
      .experts =
          model::Experts{.num_experts = 384, .top_k = 8, .ffn = 2048, .shared_ffn = 2048, .dense_layers = 1},
      .latent = kDeepSeekV3Attention}},
    {"moonlight16b",
     "config.json of moonshotai/Moonlight-16B-A3B",
     {.layers = 27,
      .hidden = 2048,
      .ffn = 11264,
      .heads = 16,
      .kv_heads = 16,
      .head_dim = 128,
      .vocab = 163840,
      .experts =
          model::Experts{.num_experts = 64, .top_k = 6, .ffn = 1408, .shared_ffn = 2816, .dense_layers = 1},
      .latent =
          model::LatentAttention{
              .query_rank = 0, .key_value_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128}}},
    {"mixtral8x22b",
     "config.json of mistralai/Mixtral-8x22B-v0.1",
     {.layers = 56,
      .hidden = 6144,
      .ffn = 16384,
      .heads = 48,
      .kv_heads = 8,
      .head_dim = 128,
      .vocab = 32768,
      .experts = model::Experts{.num_experts = 8, .top_k = 2, .ffn = 16384}}},
    {"mixtral8x7b",
     "config.json of mistralai/Mixtral-8x7B-v0.1",
     {.layers = 32,
      .hidden = 4096,
      .ffn = 14336,
      .heads = 32,
      .kv_heads = 8,
      .head_dim = 128,
      .vocab = 32000,
      .experts = model::Experts{.num_experts = 8, .top_k = 2, .ffn = 14336}}},
    {"qwen3235ba22b",
     "config.json of Qwen/Qwen3-235B-A22B",
     {.layers = 94,
      .hidden = 4096,
      .ffn = 12288,
      .heads = 64,
      .kv_heads = 4,
      .head_dim = 128,
      .vocab = 151936,
      .experts = model::Experts{.num_experts = 128, .top_k = 8, .ffn = 1536},
      .qk_norm = true}},
    {"qwen330ba3b",
     "config.json of Qwen/Qwen3-30B-A3B",
     {.layers = 48,
      .hidden = 2048,
      .ffn = 6144,
      .heads = 32,
      .kv_heads = 4,
      .head_dim = 128,
      .vocab = 151936,
      .experts = model::Experts{.num_experts = 128, .top_k = 8, .ffn = 768},
      .qk_norm = true}},
    {"gptoss120b",
     "config.json of openai/gpt-oss-120b",
     {.layers = 36,
      .hidden = 2880,
      .ffn = 2880,
      .heads = 64,
      .kv_heads = 8,
      .head_dim = 64,
      .vocab = 201088,
      .experts = model::Experts{.num_experts = 128, .top_k = 4, .ffn = 2880},
      .qkv_bias = true,
      .attention_out_bias = true,
      .mlp_bias = true,
      .clamped_gate = true,
      .yarn = true,
      .sliding_window = 128,
      .sliding_window_share = 0.5}},
    {"gptoss20b",
     "config.json of openai/gpt-oss-20b",
     {.layers = 24,
      .hidden = 2880,
      .ffn = 2880,
      .heads = 64,
      .kv_heads = 8,
      .head_dim = 64,
      .vocab = 201088,
      .experts = model::Experts{.num_experts = 32, .top_k = 4, .ffn = 2880},
      .qkv_bias = true,
      .attention_out_bias = true,
      .mlp_bias = true,
      .clamped_gate = true,
      .yarn = true,
      .sliding_window = 128,
      .sliding_window_share = 0.5}},
    {"internlm20b",
     "internlm/internlm-20b configuration",
     {.layers = 60,
      .hidden = 5120,
      .ffn = 13824,
      .heads = 40,
      .kv_heads = 40,
      .head_dim = 128,
      .vocab = 103168}},
    {"internlm7b",
     "configs/7B_sft.py of InternLM/InternEvo (mlp_ratio 8/3, rounded to 256)",
     {.layers = 32,
      .hidden = 4096,
      .ffn = 11008,
      .heads = 32,
      .kv_heads = 32,
      .head_dim = 128,
      .vocab = 103168}},
    {"gpt3175b",
     "arXiv 2005.14165, table 2.1",
     {.layers = 96,
      .hidden = 12288,
      .ffn = 49152,
      .heads = 96,
      .kv_heads = 96,
      .head_dim = 128,
      .vocab = 50257}},
};

bool HasAny(const std::string& name, std::initializer_list<const char*> words) {
  for (const char* word : words) {
    if (absl::StrContains(name, word)) return true;
  }
  return false;
}

}  // namespace

std::string Normalized(absl::string_view text) {
  std::string out;
  for (char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      out.push_back(absl::ascii_tolower(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

absl::Span<const KnownModel> KnownModels() { return kModels; }

const KnownModel* FindKnownModel(absl::string_view name) {
  const std::string key = Normalized(name);
  for (const KnownModel& model : kModels) {
    if (absl::StrContains(key, model.pattern)) return &model;
  }
  return nullptr;
}

std::string ApplyFamily(absl::string_view name, int64_t seq_len, model::ModelSpec& a) {
  const std::string key = Normalized(name);
  if (HasAny(key, {"gptoss"})) {
    a.qkv_bias = a.attention_out_bias = a.mlp_bias = true;
    a.yarn = true;
    a.clamped_gate = true;
    a.sliding_window = 128;
    a.sliding_window_share = 0.5;
    return "gpt-oss";
  }
  if (HasAny(key, {"mpt"})) {
    a.gated_mlp = false;
    a.layer_norm = true;
    a.qkv_bias = a.attention_out_bias = a.mlp_bias =
        true;  // no_bias: false (mosaicml/llm-foundry llmfoundry/models/mpt/configuration_mpt.py)
    a.tie_embeddings = true;
    a.learned_positions = seq_len;
    return "mpt";
  }
  if (HasAny(key, {"gpt", "bloom", "mtnlg"})) {
    a.gated_mlp = false;
    a.layer_norm = true;
    a.qkv_bias = a.attention_out_bias = a.mlp_bias = true;
    a.tie_embeddings = true;
    a.learned_positions = seq_len;
    return "gpt";
  }
  if (HasAny(key, {"internlm"})) {
    a.qkv_bias = true;
    return "internlm";
  }
  if (HasAny(key, {"qwen3"})) {
    a.qk_norm = true;
    return "qwen3";
  }
  if (HasAny(key, {"qwen25", "qwen2"})) {
    a.qkv_bias = true;
    return "qwen2";
  }
  if (HasAny(key, {"llama323b", "llama321b", "smollm2"})) a.tie_embeddings = true;
  return "llama";
}

}  // namespace trainctl::pricing
