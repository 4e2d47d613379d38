#include "published/recompute_modules.h"

#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "frameworks/workload.h"

namespace trainctl::published {
namespace {

const std::pair<const char*, frameworks::RecomputeModule> kModuleNames[] = {
    {"core_attn", frameworks::kCoreAttention},      {"layernorm", frameworks::kLayerNorms},
    {"mla_up_proj", frameworks::kLatentUp},         {"mlp", frameworks::kPlainMlp},
    {"moe_act", frameworks::kExpertActivation},     {"moe", frameworks::kWholeExperts},
    {"shared_experts", frameworks::kSharedExperts},
};

}  // namespace

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
