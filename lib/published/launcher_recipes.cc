#include "published/launcher_recipes.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/names.h"
#include "cluster/catalogue.h"

namespace trainctl::published {
namespace {

struct LauncherRecipe {
  const char* model;  // part of the normalized name
  const char* mode;   // of the notes
  int64_t virtual_stages;
  bool tensor_overlap;  // ub_tp_comm_overlap
  bool fp8_parameters;  // fp8_params
  double optimizer_bytes;
  const char* source;
};

// NVIDIA/NeMo-Framework-Launcher@3499f38e ("24.05 results", which brought the table): the scripts below
// examples/ and the files below launcher_scripts/conf/ that they name. Gradients are kept and reduced in bf16
// (grad_sync_dtype). Apex's distributed_fused_adam has fp32 moments, and of the fp32 master copy the lower
// halves that bf16 weights lack (NVIDIA/NeMo nemo/collections/nlp/models/language_modeling/
// megatron_base_model.py, setup_optimization, store_param_remainders); where its dtype is bf16 (conf/peft/
// llama/sft.yaml), moments and, with FP8 parameters, the master copy are bf16 (ibid., store_params).
constexpr double kRemaindersAndMoments = 2 + 4 + 4, kAllHalf = 2 + 2 + 2;
constexpr LauncherRecipe kRecipes[] = {
    {"gpt3175b", "pretrain", 12, false, false, kRemaindersAndMoments, "training/gpt/h100/175b_fp8_16node.sh"},
    {"llama213b", "pretrain", 10, false, false, kRemaindersAndMoments,
     "training/llama/h100/llama2_13b_fp8.sh"},
    {"llama270b", "pretrain", 20, true, false, kRemaindersAndMoments,
     "training/llama/h100/llama2_70b_fp8.sh"},
    {"llama370b", "pretrain", 10, true, false, kRemaindersAndMoments,
     "training/llama/h100/llama3_70b_fp8.sh"},
    {"llama", "pretrain", 1, false, false, kRemaindersAndMoments, "training/llama/h100/llama2_7b_fp8.sh"},
    {"llama213b", "SFT", 10, false, true, kAllHalf, "peft/llama/h100/13b_1node.sh"},
    {"llama270b", "SFT", 20, true, true, kAllHalf, "peft/llama/h100/70b_2node.sh"},
    {"llama", "SFT", 1, false, true, kAllHalf, "peft/llama/h100/7b_1node.sh"},
    {"llama270b", "LoRA", 1, true, true, kAllHalf, "peft/llama/h100/70b_1node_lora.sh"},
    {"llama", "LoRA", 1, false, true, kAllHalf, "peft/llama/h100/7b_1node_lora.sh"},
};

}  // namespace

std::string ApplyLauncherRecipe(absl::string_view model, absl::string_view notes, bool states_virtual_stages,
                                frameworks::Workload& w) {
  const std::string key = NormalName(model);
  for (const LauncherRecipe& recipe : kRecipes) {
    if (!absl::StrContains(key, recipe.model) || !absl::StrContains(notes, recipe.mode)) continue;
    // A pipeline of another depth may not have as many chunks.
    const bool divides = w.mesh.pp > 1 && w.model.layers % (w.mesh.pp * recipe.virtual_stages) == 0;
    if (!states_virtual_stages && divides) w.virtual_stages = recipe.virtual_stages;
    w.gradient_bytes = w.exchanged_gradient_bytes = 2;
    w.optimizer_bytes = recipe.optimizer_bytes;
    w.overlap_tensor_parallel = recipe.tensor_overlap;
    w.weights_in_fp8 = recipe.fp8_parameters && w.precision == frameworks::Precision::kFp8;
    w.transposed_weights = w.weights_in_fp8 && w.device->silicon == cluster::Silicon::kHopper;
    return absl::StrCat("examples/", recipe.source);
  }
  return "";
}

}  // namespace trainctl::published
