#include "pricing/published_recipe.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "pricing/matmul_time.h"

namespace trainctl::pricing {
namespace {

// "26.04.01 NeMo Container" is release 2604; 0 where none is named.
int ContainerRelease(absl::string_view notes) {
  const size_t at = notes.find(" NeMo Container");
  if (at == absl::string_view::npos) return 0;
  const size_t begin = notes.rfind(' ', at == 0 ? 0 : at - 1);
  const absl::string_view release = notes.substr(begin == absl::string_view::npos ? 0 : begin + 1, at);
  int year = 0, month = 0;
  if (release.size() < 5 || release[2] != '.' || !absl::SimpleAtoi(release.substr(0, 2), &year) ||
      !absl::SimpleAtoi(release.substr(3, 2), &month)) {
    return 0;
  }
  return year * 100 + month;
}

}  // namespace

std::string ApplyPublishedRecipe(absl::string_view model, absl::string_view notes, Workload& w) {
  std::vector<std::string> applied;
  const std::string lower = absl::AsciiStrToLower(notes);
  if (absl::StrContains(lower, "lora")) {
    w.frozen = true;
    applied.push_back("LoRA: the model's own weights are frozen");
  }
  if (!w.model.experts.has_value() || w.degrees.ep == 1) return absl::StrJoin(applied, "; ");
  const int release = ContainerRelease(notes);
  const absl::string_view device = w.device->name;
  const bool superchip = absl::StartsWith(device, "gb");
  const bool gpt_oss = absl::StrContains(absl::AsciiStrToLower(model), "gpt-oss");
  // NVIDIA-NeMo/Megatron-Bridge scripts/performance/configs/*/*workload_base_configs.py,
  // moe_flex_dispatcher_backend "hybridep": @1e9a459b4 (November 2025) on GB200 and GB300 but for gpt-oss,
  // @7de13ff8c (February 2026) for DeepSeek-V3 on all, @abdaeb625 (April 2026) for gpt-oss too, @067f987df
  // (August 2026) all.
  const bool once = (release >= 2511 && superchip && !gpt_oss) ||
                    (release >= 2602 && w.model.latent.has_value()) || (release >= 2604 && gpt_oss) ||
                    release >= 2606;
  if (once || absl::StrContains(lower, "hybridep")) {
    w.expert_dispatch = ExpertDispatch::kNodeAware;
    applied.push_back("tokens are sent once to each rank (HybridEP)");
  }
  // Ibid., moe_a2a_overlap: Qwen3-235B on H100 and B300 with several virtual stages.
  const bool overlap = release >= 2511 && release < 2606 && w.degrees.virtual_stages > 1 &&
                       absl::StrContains(absl::AsciiStrToLower(model), "235b") &&
                       (absl::StartsWith(device, "h100") || absl::StartsWith(device, "b300"));
  if (overlap || absl::StrContains(lower, "ep overlap on")) {
    w.overlap_experts = true;
    applied.push_back("exchanges of tokens beside another micro-batch's passes");
  }
  // Megatron-Bridge@067f987df src/megatron/bridge/perf_recipes/{deepseek,gpt_oss,qwen}/common.py, MXFP8 on
  // Blackwell: use_transformer_engine_op_fuser with moe_mlp_glu_interleave_size, fp8_output_proj,
  // overlap_moe_expert_parallel_comm.
  if (release >= 2606 && w.precision == Precision::kMxfp8 &&
      GenerationOf(*w.device) == Generation::kBlackwell) {
    w.framework = FindFramework("megatron-core-fused-experts");
    w.overlap_experts = true;
    applied.push_back("experts' MLPs fused, their exchanges overlapped, head in MXFP8 (recipes of 26.06)");
  }
  return absl::StrJoin(applied, "; ");
}

}  // namespace trainctl::pricing
