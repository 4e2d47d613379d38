// Named models, one table. Published models have the sizes of their config.json.

#include "model/presets.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/names.h"
#include "base/status.h"
#include "model/architecture.h"
#include "model/parameters.h"

namespace trainctl::model {
namespace {

constexpr char kOwnSource[] = "a size of our own, for tests, quick starts and benchmarks";

// How positions are encoded, by generation.
enum class Positions { kPlain, kLlama31, kLlama32 };

struct LlamaRow {
  const char* name;
  const char* source;
  int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_position;
  bool tied;
  Positions positions;
};

constexpr LlamaRow kLlamas[] = {
    {"toy-1m", kOwnSource, 4, 128, 4, 2, 32, 384, 1024, 2048, false, Positions::kPlain},
    {"toy-5m", kOwnSource, 6, 256, 8, 4, 32, 704, 1024, 2048, false, Positions::kPlain},
    {"llama-25m", kOwnSource, 8, 384, 6, 2, 64, 1024, 16384, 2048, false, Positions::kPlain},
    {"llama-120m", kOwnSource, 12, 768, 12, 4, 64, 2048, 32000, 2048, false, Positions::kPlain},
    {"llama-1b", "config.json of TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T", 22, 2048, 32, 4, 64,
     5632, 32000, 2048, false, Positions::kPlain},
    {"llama3.2-1b", "config.json of meta-llama/Llama-3.2-1B", 16, 2048, 32, 8, 64, 8192, 128256, 131072, true,
     Positions::kLlama32},
    {"llama3.2-3b", "config.json of meta-llama/Llama-3.2-3B", 28, 3072, 24, 8, 128, 8192, 128256, 131072,
     true, Positions::kLlama32},
    {"llama2-7b", "config.json of meta-llama/Llama-2-7b-hf", 32, 4096, 32, 32, 128, 11008, 32000, 4096, false,
     Positions::kPlain},
    {"llama3.1-8b", "config.json of meta-llama/Llama-3.1-8B", 32, 4096, 32, 8, 128, 14336, 128256, 131072,
     false, Positions::kLlama31},
    {"llama2-13b", "config.json of meta-llama/Llama-2-13b-hf", 40, 5120, 40, 40, 128, 13824, 32000, 4096,
     false, Positions::kPlain},
    {"llama2-70b", "config.json of meta-llama/Llama-2-70b-hf", 80, 8192, 64, 8, 128, 28672, 32000, 4096,
     false, Positions::kPlain},
    {"llama3.1-70b", "config.json of meta-llama/Llama-3.1-70B", 80, 8192, 64, 8, 128, 28672, 128256, 131072,
     false, Positions::kLlama31},
    {"llama3.1-405b", "config.json of meta-llama/Llama-3.1-405B", 126, 16384, 128, 8, 128, 53248, 128256,
     131072, false, Positions::kLlama31},
};

NamedModel ModelOf(const LlamaRow& row) {
  NamedModel model = {row.name, row.source, {}};
  Architecture& spec = model.spec;
  spec = LlamaOf({.layers = row.layers,
                  .hidden = row.hidden,
                  .ffn = row.ffn,
                  .heads = row.heads,
                  .kv_heads = row.kv_heads,
                  .head_dim = row.head_dim,
                  .vocab = row.vocab,
                  .max_position = row.max_position});
  spec.tie_embeddings = row.tied;
  if (row.positions != Positions::kPlain) {
    spec.rope.theta = 500000.0;
    spec.rope.scaling = RopeScaling{.factor = row.positions == Positions::kLlama31 ? 8.0 : 32.0};
  }
  return model;
}

constexpr LatentAttention kDeepSeekV3Attention = {
    .query_rank = 1536, .key_value_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128};

// A model of another family than Llama, with experts in all layers but the first `dense_layers`.
Architecture ModelOf(const char* family, const LlamaSizes& sizes, const std::optional<Experts>& experts = {},
                     int64_t dense_layers = 0) {
  Architecture spec = LlamaOf(sizes);
  spec.family = family;
  SetExperts(spec, experts, dense_layers);
  return spec;
}

Architecture DeepSeekOf(const char* family, const LlamaSizes& sizes, const LatentAttention& latent,
                        const Experts& experts, int64_t dense_layers) {
  Architecture spec = ModelOf(family, sizes, experts, dense_layers);
  SetEach(spec, &Attention::latent, latent);
  return spec;
}

Architecture Qwen3MoeOf(const LlamaSizes& sizes, const Experts& experts) {
  Architecture spec = ModelOf("qwen3_moe", sizes, experts);
  SetEach(spec, &Attention::qk_norm, QkNorm::kHead);
  return spec;
}

Architecture GptOssOf(int64_t layers, int64_t num_experts) {
  Architecture spec = ModelOf("gpt_oss",
                              {.layers = layers,
                               .hidden = 2880,
                               .ffn = 2880,
                               .heads = 64,
                               .kv_heads = 8,
                               .head_dim = 64,
                               .vocab = 201088},
                              Experts{.num_experts = num_experts, .top_k = 4, .ffn = 2880});
  SetAllLinearBiases(spec, true);
  SetEach(spec, &Mlp::clamped, true);
  SetWindow(spec, 128, /*period=*/2);
  spec.rope.scaling = RopeScaling{
      .factor = 32, .original_max_position = 4096, .kind = RopeScalingKind::kYarn, .truncate = false};
  return spec;
}

Architecture InternLmOf(const LlamaSizes& sizes) {
  Architecture spec = ModelOf("internlm", sizes);
  SetEach(spec, &Attention::qkv_bias, true);
  return spec;
}

Architecture Gpt3() {
  Architecture spec = ModelOf("gpt2", {.layers = 96,
                                       .hidden = 12288,
                                       .ffn = 49152,
                                       .heads = 96,
                                       .kv_heads = 96,
                                       .head_dim = 128,
                                       .vocab = 50257,
                                       .max_position = 2048});
  spec.learned_positions = 2048;
  spec.norm.kind = NormKind::kLayer;
  spec.tie_embeddings = true;
  SetEach(spec, &Mlp::gated, false);
  SetAllLinearBiases(spec, true);
  return spec;
}

// Other families, to be planned. A row states what counts, memory and time depend on.
std::vector<NamedModel> OtherModels() {
  Architecture deepseek_v3 =
      DeepSeekOf("deepseek_v3",
                 {.layers = 61,
                  .hidden = 7168,
                  .ffn = 18432,
                  .heads = 128,
                  .kv_heads = 128,
                  .head_dim = 128,
                  .vocab = 129280},
                 kDeepSeekV3Attention, {.num_experts = 256, .top_k = 8, .ffn = 2048, .shared_ffn = 2048},
                 /*dense_layers=*/3);
  deepseek_v3.mtp_layers = 1;
  return {
      {"deepseek-v3", "config.json of deepseek-ai/DeepSeek-V3", deepseek_v3},
      {"kimi-k2", "config.json of moonshotai/Kimi-K2-Base",
       DeepSeekOf("kimi_k2",
                  {.layers = 61,
                   .hidden = 7168,
                   .ffn = 18432,
                   .heads = 64,
                   .kv_heads = 64,
                   .head_dim = 128,
                   .vocab = 163840},
                  kDeepSeekV3Attention, {.num_experts = 384, .top_k = 8, .ffn = 2048, .shared_ffn = 2048},
                  /*dense_layers=*/1)},
      {"moonlight-16b", "config.json of moonshotai/Moonlight-16B-A3B",
       DeepSeekOf("deepseek_v3",
                  {.layers = 27,
                   .hidden = 2048,
                   .ffn = 11264,
                   .heads = 16,
                   .kv_heads = 16,
                   .head_dim = 128,
                   .vocab = 163840},
                  {.query_rank = 0, .key_value_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128},
                  {.num_experts = 64, .top_k = 6, .ffn = 1408, .shared_ffn = 2816}, /*dense_layers=*/1)},
      {"mixtral-8x22b", "config.json of mistralai/Mixtral-8x22B-v0.1",
       ModelOf("mixtral",
               {.layers = 56,
                .hidden = 6144,
                .ffn = 16384,
                .heads = 48,
                .kv_heads = 8,
                .head_dim = 128,
                .vocab = 32768},
               Experts{.num_experts = 8, .top_k = 2, .ffn = 16384})},
      {"mixtral-8x7b", "config.json of mistralai/Mixtral-8x7B-v0.1",
       ModelOf("mixtral",
               {.layers = 32,
                .hidden = 4096,
                .ffn = 14336,
                .heads = 32,
                .kv_heads = 8,
                .head_dim = 128,
                .vocab = 32000},
               Experts{.num_experts = 8, .top_k = 2, .ffn = 14336})},
      {"qwen3-235b-a22b", "config.json of Qwen/Qwen3-235B-A22B",
       Qwen3MoeOf({.layers = 94,
                   .hidden = 4096,
                   .ffn = 12288,
                   .heads = 64,
                   .kv_heads = 4,
                   .head_dim = 128,
                   .vocab = 151936},
                  {.num_experts = 128, .top_k = 8, .ffn = 1536})},
      {"qwen3-30b-a3b", "config.json of Qwen/Qwen3-30B-A3B",
       Qwen3MoeOf({.layers = 48,
                   .hidden = 2048,
                   .ffn = 6144,
                   .heads = 32,
                   .kv_heads = 4,
                   .head_dim = 128,
                   .vocab = 151936},
                  {.num_experts = 128, .top_k = 8, .ffn = 768})},
      {"gpt-oss-120b", "config.json of openai/gpt-oss-120b", GptOssOf(36, 128)},
      {"gpt-oss-20b", "config.json of openai/gpt-oss-20b", GptOssOf(24, 32)},
      {"internlm-20b", "internlm/internlm-20b configuration",
       InternLmOf({.layers = 60,
                   .hidden = 5120,
                   .ffn = 13824,
                   .heads = 40,
                   .kv_heads = 40,
                   .head_dim = 128,
                   .vocab = 103168})},
      {"internlm-7b", "configs/7B_sft.py of InternLM/InternEvo (mlp_ratio 8/3, rounded to 256)",
       InternLmOf({.layers = 32,
                   .hidden = 4096,
                   .ffn = 11008,
                   .heads = 32,
                   .kv_heads = 32,
                   .head_dim = 128,
                   .vocab = 103168})},
      {"gpt3-175b", "arXiv 2005.14165, table 2.1", Gpt3()},
  };
}

std::vector<NamedModel> AllModels() {
  std::vector<NamedModel> models;
  for (const LlamaRow& row : kLlamas) models.push_back(ModelOf(row));
  for (NamedModel& model : OtherModels()) models.push_back(std::move(model));
  std::stable_sort(models.begin(), models.end(), [](const NamedModel& a, const NamedModel& b) {
    return NumParameters(a.spec) < NumParameters(b.spec);
  });
  return models;
}

std::vector<std::string> NamesWhere(bool trainable) {
  std::vector<std::string> names;
  for (const NamedModel& model : NamedModels()) {
    if (WhyNotTrainable(model.spec).empty() == trainable) names.emplace_back(model.name);
  }
  return names;
}

}  // namespace

absl::Span<const NamedModel> NamedModels() {
  static const auto* const models = new std::vector<NamedModel>(AllModels());
  return *models;
}

absl::StatusOr<Architecture> Preset(absl::string_view name) {
  std::vector<std::string> names;
  const std::string normal = NormalName(name);
  for (const NamedModel& model : NamedModels()) {
    if (normal == NormalName(model.name)) return model.spec;
    names.emplace_back(model.name);
  }
  return UsageError(absl::StrCat("model.preset = ", QuotedName(name), " is not known; the nearest are ",
                                 NearestNames(name, names), "; the presets are ",
                                 absl::StrJoin(PresetNames(), ", "),
                                 "; only for planning: ", absl::StrJoin(PlannedPresetNames(), ", "),
                                 "; model.from = FOLDER takes the config.json of another"));
}

std::vector<std::string> PresetNames() { return NamesWhere(/*trainable=*/true); }

std::vector<std::string> PlannedPresetNames() { return NamesWhere(/*trainable=*/false); }

}  // namespace trainctl::model
