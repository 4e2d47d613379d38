#include "published/known_models.h"

#include <initializer_list>
#include <string>

#include "absl/strings/match.h"
#include "base/names.h"

namespace trainctl::published {
namespace {

bool HasAny(const std::string& name, std::initializer_list<const char*> words) {
  for (const char* word : words) {
    if (absl::StrContains(name, word)) return true;
  }
  return false;
}

}  // namespace

const model::NamedModel* FindKnownModel(absl::string_view name) {
  const std::string key = NormalName(name);
  for (const model::NamedModel& model : model::NamedModels()) {
    if (model.spec.family != "llama" && absl::StrContains(key, NormalName(model.name))) return &model;
  }
  return nullptr;
}

void ApplyFamily(absl::string_view name, int64_t seq_len, model::Architecture& a) {
  const std::string key = NormalName(name);
  // What is named without sizes keeps the name of its own row.
  const auto set_family = [&](const char* family) {
    if (a.family == "llama") a.family = family;
  };
  if (HasAny(key, {"gptoss"})) {
    SetAllLinearBiases(a, true);
    a.rope.scaling = model::RopeScaling{.factor = 32,
                                        .original_max_position = 4096,
                                        .kind = model::RopeScalingKind::kYarn,
                                        .truncate = false};
    SetEach(a, &model::Mlp::clamped, true);
    SetWindow(a, 128, /*period=*/2);
    set_family("gpt_oss");
    return;
  }
  if (HasAny(key, {"mpt"})) {
    SetEach(a, &model::Mlp::gated, false);
    a.norm.kind = model::NormKind::kLayer;
    // no_bias: false (mosaicml/llm-foundry llmfoundry/models/mpt/configuration_mpt.py)
    SetAllLinearBiases(a, true);
    a.tie_embeddings = true;
    a.learned_positions = seq_len;
    set_family("mpt");
    return;
  }
  if (HasAny(key, {"gpt", "bloom", "mtnlg"})) {
    SetEach(a, &model::Mlp::gated, false);
    a.norm.kind = model::NormKind::kLayer;
    SetAllLinearBiases(a, true);
    a.tie_embeddings = true;
    a.learned_positions = seq_len;
    set_family("gpt2");
    return;
  }
  if (HasAny(key, {"internlm"})) {
    SetEach(a, &model::Attention::qkv_bias, true);
    set_family("internlm");
    return;
  }
  if (HasAny(key, {"qwen3"})) {
    SetEach(a, &model::Attention::qk_norm, model::QkNorm::kHead);
    set_family("qwen3");
    return;
  }
  if (HasAny(key, {"qwen25", "qwen2"})) {
    SetEach(a, &model::Attention::qkv_bias, true);
    return;
  }
  if (HasAny(key, {"llama323b", "llama321b", "smollm2"})) a.tie_embeddings = true;
}

}  // namespace trainctl::published
