#include "published/expert_recipes.h"

#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "base/names.h"

namespace trainctl::published {
namespace {

constexpr frameworks::ExpertDispatch kPlain = frameworks::ExpertDispatch::kAllToAll;
constexpr frameworks::ExpertDispatch kAware = frameworks::ExpertDispatch::kNodeAware;

// Releases as ReleaseIn gives them.
constexpr int kFirst = 0, kLast = 999999;

struct ExpertRecipe {
  const char* model;   // part of the normalized name
  const char* device;  // beginning of the device's name
  bool mxfp8_only;
  int from, to;  // releases, both inclusive
  frameworks::ExpertDispatch dispatch;
  bool overlap;
  bool fused = false;
  bool fp8_attention = false;
};

// NVIDIA-NeMo/Megatron-Bridge: moe_flex_dispatcher_backend ("hybridep", "deepep": node aware; none:
// all-to-all) and moe_a2a_overlap or overlap_moe_expert_parallel_comm. Tags v0.2.0 (containers up to 25.11),
// v0.3.0 (26.02), v0.4.0 (26.04), v0.4.2 (26.04.01): scripts/performance/configs/*/*workload_base_configs.py.
// v0.5.0 (26.06): the same and *_llm_pretrain.py, where full-iteration graphs, of MXFP8 alone, come with
// overlap, fused experts and fp8_dot_product_attention. v0.6.0 (26.08): src/megatron/bridge/perf_recipes. The
// kernels of gpt-oss's fused experts had regressed in 26.06.01 (release notes of v0.5.1, "Known issues"):
// priced as not fused. The first line that fits counts.
constexpr ExpertRecipe kRecipes[] = {
    {"deepseekv3", "h", false, kFirst, 251199, kAware, true},
    {"deepseekv3", "b", false, kFirst, 251199, kPlain, false},
    {"deepseekv3", "b200", true, 260401, kLast, kAware, true},
    {"deepseekv3", "gb300", true, 260600, kLast, kAware, true, true, true},
    {"deepseekv3", "gb", true, 260600, kLast, kAware, true, true},
    {"deepseekv3", "b300", true, 260601, kLast, kAware, true, true, true},
    {"deepseekv3", "", false, kFirst, kLast, kAware, false},
    {"kimik2", "", false, kFirst, kLast, kAware, false},
    {"qwen330b", "h", false, kFirst, 251199, kPlain, true},
    {"qwen330b", "h", false, 260200, 260299, kAware, true},
    {"qwen330b", "b200", false, kFirst, 260299, kPlain, false},
    {"qwen330b", "h", false, 260400, kLast, kAware, false},
    {"qwen330b", "", true, 260600, kLast, kAware, true, true, true},
    {"qwen330b", "", false, kFirst, kLast, kAware, false},
    {"qwen3235b", "h", false, kFirst, kLast, kPlain, true},
    {"qwen3235b", "b200", false, kFirst, 251199, kPlain, true},
    {"qwen3235b", "b300", false, kFirst, 260299, kPlain, true},
    {"qwen3235b", "b300", false, 260400, 260499, kPlain, false},
    {"qwen3235b", "", true, 260600, kLast, kAware, true, true, true},
    {"qwen3235b", "b200", false, kFirst, kLast, kPlain, false},
    {"qwen3235b", "", false, kFirst, kLast, kAware, false},
    {"gptoss", "gb", true, 260601, 260699, kAware, true, false, true},
    {"gptoss", "gb", true, 260600, kLast, kAware, true, true, true},
    {"gptoss", "gb200", false, 260400, kLast, kAware, true},
    {"gptoss", "b", false, 260400, kLast, kAware, false},
    {"gptoss", "", false, kFirst, kLast, kPlain, false},
};

}  // namespace

int ReleaseIn(absl::string_view notes) {
  const size_t at = notes.find(" NeMo Container");
  if (at == absl::string_view::npos) return 0;
  size_t start = at;
  while (start > 0 && notes[start - 1] != ' ' && notes[start - 1] != ';') --start;
  const std::string release(notes.substr(start, at - start));  // "26.04", "26.04.01"
  if (release.size() < 5 || release[2] != '.') return 0;
  const int month = 100 * std::atoi(release.substr(0, 2).c_str()) + std::atoi(release.substr(3, 2).c_str());
  return 100 * month + (release.size() == 8 && release[5] == '.' ? std::atoi(release.c_str() + 6) : 0);
}

bool ApplyExpertRecipe(absl::string_view model, absl::string_view notes, frameworks::Workload& w) {
  const int release = ReleaseIn(notes);
  if (release == 0 || !w.model.experts.has_value()) return false;
  const std::string name = NormalName(model);
  for (const ExpertRecipe& recipe : kRecipes) {
    if (!absl::StrContains(name, recipe.model) || !absl::StartsWith(w.device->name, recipe.device)) continue;
    if (recipe.mxfp8_only && w.precision != frameworks::Precision::kMxfp8) continue;
    if (release < recipe.from || release > recipe.to) continue;
    w.expert_dispatch = recipe.dispatch;
    // With a pipeline the overlap needs several stages of a rank (src/megatron/bridge/training/
    // comm_overlap.py).
    w.overlap_experts = recipe.overlap && (w.mesh.pp == 1 || w.virtual_stages > 1);
    // The same recipes set use_transformer_engine_op_fuser with moe_mlp_glu_interleave_size and
    // fp8_output_proj (v0.6.0 src/megatron/bridge/perf_recipes/{deepseek,gpt_oss,qwen}/common.py).
    w.fused_experts = recipe.fused;
    w.fp8_attention = recipe.fp8_attention;
    return true;
  }
  return false;
}

}  // namespace trainctl::published
