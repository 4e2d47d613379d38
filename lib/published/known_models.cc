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

void ApplyFamily(absl::string_view name, int64_t seq_len, model::ModelSpec& a) {
  const std::string key = NormalName(name);
  // What is named without sizes keeps the name of its own row.
  const auto set_family = [&](const char* family) {
    if (a.family == "llama") a.family = family;
  };
  if (HasAny(key, {"gptoss"})) {
    a.qkv_bias = a.attention_out_bias = a.mlp_bias = true;
    a.yarn = true;
    a.clamped_gate = true;
    a.sliding_window = 128;
    a.sliding_window_share = 0.5;
    set_family("gpt_oss");
    return;
  }
  if (HasAny(key, {"mpt"})) {
    a.gated_mlp = false;
    a.layer_norm = true;
    // no_bias: false (mosaicml/llm-foundry llmfoundry/models/mpt/configuration_mpt.py)
    a.qkv_bias = a.attention_out_bias = a.mlp_bias = true;
    a.tie_embeddings = true;
    a.learned_positions = seq_len;
    set_family("mpt");
    return;
  }
  if (HasAny(key, {"gpt", "bloom", "mtnlg"})) {
    a.gated_mlp = false;
    a.layer_norm = true;
    a.qkv_bias = a.attention_out_bias = a.mlp_bias = true;
    a.tie_embeddings = true;
    a.learned_positions = seq_len;
    set_family("gpt2");
    return;
  }
  if (HasAny(key, {"internlm"})) {
    a.qkv_bias = true;
    set_family("internlm");
    return;
  }
  if (HasAny(key, {"qwen3"})) {
    a.qk_norm = true;
    set_family("qwen3");
    return;
  }
  if (HasAny(key, {"qwen25", "qwen2"})) {
    a.qkv_bias = true;
    return;
  }
  if (HasAny(key, {"llama323b", "llama321b", "smollm2"})) a.tie_embeddings = true;
}

}  // namespace trainctl::published
