#include "published/recipes.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/names.h"

namespace trainctl::published {
namespace {

constexpr frameworks::RecomputeKind kSome = frameworks::RecomputeKind::kSelective;

// NVIDIA-NeMo/Megatron-Bridge@067f987, below src/megatron/bridge/perf_recipes/ where no other folder is
// named. The first line that fits counts. Releases before it may have had others; rows say which release they
// are of.
const Recipe kRecipes[] = {
    {.model = "deepseekv3",
     .device = "gb300",
     .fully_sharded = true,
     .recompute = kSome,
     .modules = frameworks::kLayerNorms | frameworks::kLatentUp | frameworks::kExpertActivation,
     .half_moments = true,
     .source = "deepseek/common.py:114"},
    {.model = "deepseekv3",
     .device = "gb300",
     .precision = "bf16",
     .recompute = kSome,
     .modules = frameworks::kExpertActivation,
     .half_moments = true,
     .source = "deepseek/gb300/deepseek_v3.py:46"},
    {.model = "deepseekv3",
     .device = "gb300",
     .precision = "mxfp8",
     .from = 260600,
     .half_moments = true,
     .source = "deepseek/gb300/deepseek_v3.py:148, and of v0.5.0"},
    {.model = "deepseekv3",
     .device = "gb300",
     .recompute = kSome,
     .modules = frameworks::kLatentUp,
     .half_moments = true,
     .source = "deepseek/gb300/deepseek_v3.py:98,203"},
    {.model = "deepseekv3",
     .device = "gb200",
     .precision = "fp8",
     .recompute = kSome,
     .modules = frameworks::kPlainMlp,
     .half_moments = true,
     .source = "deepseek/gb200/deepseek_v3.py:97"},
    {.model = "deepseekv3",
     .device = "gb200",
     .precision = "nvfp4",
     .recompute = kSome,
     .modules = frameworks::kPlainMlp,
     .half_moments = true,
     .source = "deepseek/gb200/deepseek_v3.py:195"},
    {.model = "deepseekv3",
     .device = "gb200",
     .recompute = kSome,
     .modules = frameworks::kLatentUp,
     .half_moments = true,
     .source = "deepseek/gb200/deepseek_v3.py:45,149"},
    {.model = "deepseekv3",
     .device = "b200",
     .precision = "mxfp8",
     .recompute = kSome,
     .modules = frameworks::kLatentUp | frameworks::kPlainMlp,
     .half_moments = true,
     .source = "deepseek/b200/deepseek_v3.py:139"},
    {.model = "deepseekv3",
     .device = "b200",
     .precision = "nvfp4",
     .recompute = kSome,
     .modules = frameworks::kLatentUp | frameworks::kLayerNorms | frameworks::kExpertActivation,
     .half_moments = true,
     .source = "deepseek/b200/deepseek_v3.py:186"},
    {.model = "deepseekv3",
     .device = "b",
     .recompute = kSome,
     .modules = frameworks::kLatentUp,
     .half_moments = true,
     .source = "deepseek/b200/deepseek_v3.py:43, deepseek/b300/deepseek_v3.py:44"},
    {.model = "deepseekv3",
     .device = "h",
     .recompute = kSome,
     .modules = frameworks::kLatentUp | frameworks::kPlainMlp,
     .half_moments = true,
     .source = "deepseek/h100/deepseek_v3.py:43,92; moments in ../recipes/deepseek/h100/deepseek_v3.py:224"},
    {.model = "kimik2",
     .device = "h",
     .recompute = kSome,
     .modules = frameworks::kLatentUp | frameworks::kPlainMlp,
     .source = "kimi/h100/kimi_k2.py:46,92"},
    {.model = "kimik2",
     .recompute = kSome,
     .modules = frameworks::kLatentUp,
     .source = "kimi/b200/kimi_k2.py:47"},
    {.model = "gptoss120b", .device = "gb300", .source = "gpt_oss/gb300/gpt_oss.py:180"},
    {.model = "gptoss120b", .device = "b300", .source = "gpt_oss/b300/gpt_oss.py"},
    {.model = "gptoss120b",
     .device = "gb200",
     .precision = "mxfp8",
     .from = 260600,
     .source = "gpt_oss/gpt_oss_workload_base_configs.py:214 of v0.5.0, below scripts/performance/configs"},
    {.model = "gptoss120b",
     .recompute = kSome,
     .modules = frameworks::kLayerNorms | frameworks::kExpertActivation,
     .source = "gpt_oss/h100/gpt_oss.py:39, gpt_oss/b200/gpt_oss.py:39, gpt_oss/gb200/gpt_oss.py:195"},
    {.model = "llama38b",
     .device = "h",
     .precision = "fp8",
     .recompute = frameworks::RecomputeKind::kFull,
     .recomputed_layers = 5,
     .source = "llama/h100/llama3.py:87-89"},
    {.model = "llama370bsft",
     .device = "h",
     .precision = "fp8",
     .recompute = kSome,
     .modules = frameworks::kCoreAttention,
     .memory_of_first_step = true,
     .source = "pull request 3107 of 2 April 2026 (its baseline's modules), when the log had the memory of "
               "the first iteration alone (@03c137d5 ../training/utils/train_utils.py:826-836; issue 3164 of "
               "5 April 2026 asks for the second)"},
    {.model = "llama370b",
     .device = "gb300",
     .precision = "bf16",
     .fully_sharded = true,
     .offloaded_layers = 30,
     .source = "llama/gb300/llama3.py:232"},
    {.model = "llama370b",
     .device = "gb300",
     .fully_sharded = true,
     .offloaded_layers = 20,
     .source = "llama/gb300/llama3.py:286"},
    {.model = "llama370b",
     .device = "gb200",
     .precision = "bf16",
     .fully_sharded = true,
     .offloaded_layers = 20,
     .source = "llama/gb200/llama3.py:231"},
    {.model = "llama370b",
     .device = "gb200",
     .fully_sharded = true,
     .offloaded_layers = 40,
     .source = "llama/gb200/llama3.py:284"},
    {.model = "llama370b",
     .device = "b200",
     .fully_sharded = true,
     .offloaded_layers = 5,
     .source = "llama/b200/llama3.py:266"},
    {.model = "llama31405b",
     .device = "gb200",
     .fully_sharded = true,
     .offloaded_layers = 92,
     .source = "llama31/workload_base_configs.py:87 of v0.2.0, below scripts/performance/configs"},
    {.model = "llama31405b",
     .fully_sharded = true,
     .offloaded_layers = 40,
     .source = "llama/gb300/llama31.py:56,240, llama/b300/llama31.py:63"},
    {.model = "moonlight16b",
     .recompute = kSome,
     .modules = frameworks::kCoreAttention,
     .half_moments = true,
     .source = "../recipes/moonlight/h100/moonlight_16b.py:212-216,235"},
};

const std::pair<const char*, frameworks::RecomputeModule> kModuleNames[] = {
    {"core_attn", frameworks::kCoreAttention},      {"layernorm", frameworks::kLayerNorms},
    {"mla_up_proj", frameworks::kLatentUp},         {"mlp", frameworks::kPlainMlp},
    {"moe_act", frameworks::kExpertActivation},     {"moe", frameworks::kWholeExperts},
    {"shared_experts", frameworks::kSharedExperts},
};

}  // namespace

const Recipe* FindRecipe(absl::string_view model, absl::string_view device, absl::string_view precision,
                         bool fully_sharded, int release) {
  const std::string key = NormalName(model);
  for (const Recipe& recipe : kRecipes) {
    if (!absl::StrContains(key, recipe.model) || !absl::StartsWith(device, recipe.device)) continue;
    if (recipe.fully_sharded != fully_sharded || release < recipe.from) continue;
    const absl::string_view needed = recipe.precision;
    if (needed.empty() || needed == precision) return &recipe;
  }
  return nullptr;
}

bool ParseRecomputeModules(absl::string_view text, uint32_t& modules) {
  modules = 0;
  for (absl::string_view name : absl::StrSplit(text, absl::ByAnyChar("+, "), absl::SkipEmpty())) {
    bool known = false;
    for (const auto& [module_name, bit] : kModuleNames) {
      if (name != module_name) continue;
      modules |= bit;
      known = true;
    }
    if (!known) return false;
  }
  return true;
}

std::string RecomputeModulesText(uint32_t modules) {
  std::vector<std::string> names;
  for (const auto& [name, bit] : kModuleNames) {
    if ((modules & bit) != 0) names.emplace_back(name);
  }
  return absl::StrJoin(names, "+");
}

}  // namespace trainctl::published
