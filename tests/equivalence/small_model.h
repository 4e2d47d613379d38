// The model of the equivalence matrices: heads of keys that several ranks share, a vocabulary that divides by
// nothing.
#pragma once

#include <iterator>
#include <vector>

#include "layout/layout.h"
#include "model/architecture.h"
#include "model/families.h"

namespace trainctl::equivalence {

inline model::Architecture SmallModel(int64_t layers, bool tied) {
  model::Architecture spec;
  SetNumLayers(spec, layers);
  spec.hidden = 40;
  SetEach(spec, &model::Attention::heads, 4);
  SetEach(spec, &model::Attention::kv_heads, 2);
  SetEach(spec, &model::Attention::head_dim, 10);
  SetEach(spec, &model::Mlp::ffn, 56);
  spec.vocab = 211;
  spec.tie_embeddings = tied;
  SetEach(spec, &model::Attention::qkv_bias, true);
  spec.init_std = 0.1;
  return spec;
}

// Between them, the families have every operator and every kind of layer.
enum class Variant { kLlama, kTiedGpt2, kTiedGemma3, kNemotron, kTiedCohere2, kPhi, kOlmo2 };
inline constexpr const char* kVariantNames[] = {"llama",        "tied gpt2", "tied gemma3", "nemotron",
                                                "tied cohere2", "phi",       "olmo2"};
inline constexpr int kNumVariants = std::size(kVariantNames);

inline model::Architecture SmallModel(int64_t layers, Variant variant) {
  const bool is_tied =
      variant == Variant::kTiedGpt2 || variant == Variant::kTiedGemma3 || variant == Variant::kTiedCohere2;
  model::Architecture spec = SmallModel(layers, is_tied);
  constexpr int64_t kWindow = 3;
  std::vector<bool> every_second(static_cast<size_t>(layers));
  for (size_t i = 1; i < every_second.size(); i += 2) every_second[i] = true;
  if (variant == Variant::kTiedGpt2) {
    spec.family = "gpt2";
    spec.learned_positions = spec.max_position = 256;
    SetAllLinearBiases(spec, true);
  }
  if (variant == Variant::kTiedGemma3) {
    spec.family = "gemma3_text";
    spec.window_rope_theta = 50;
    spec.logit_softcap = 3;
    SetEach(spec, &model::Attention::softcap, 2);
    SetEach(spec, &model::Attention::scale, 0.25);
    SetWindows(spec, kWindow, every_second);
  }
  if (variant == Variant::kNemotron) {
    spec.family = "nemotron";
    spec.rope.share = 0.4;
    spec.embedding_multiplier = 2;
    spec.residual_multiplier = 0.6;
  }
  if (variant == Variant::kTiedCohere2) {
    spec.family = "cohere2";
    spec.logit_multiplier = 0.3;
    SetWindows(spec, kWindow, every_second);
    SetRopes(spec, every_second);
  }
  if (variant == Variant::kPhi) {
    spec.family = "phi";
    SetAllLinearBiases(spec, true);
  }
  if (variant == Variant::kOlmo2) spec.family = "olmo2";
  ApplyFamily(*model::FindFamily(spec.family), spec);
  return spec;
}

// Of each stage about half, and of stages with one layer every other's.
inline std::vector<int64_t> SomeLayers(const model::Architecture& spec, const layout::Layout& layout) {
  if (layout.mesh.pp == 1) return {NumLayers(spec) / 2};
  std::vector<int64_t> layers;
  for (const int64_t count : layout.pipeline.stage_layers)
    layers.push_back((count + static_cast<int64_t>(layers.size() % 2)) / 2);
  return layers;
}

}  // namespace trainctl::equivalence
