// The model of the equivalence matrices: heads of keys that several ranks share, a vocabulary that divides by
// nothing.
#pragma once

#include <iterator>

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

// Between them, the families have every operator.
enum class Variant { kLlama, kTiedLlama, kQwen3, kTiedGemma, kNemotron };
inline constexpr const char* kVariantNames[] = {"llama", "tied llama", "qwen3", "tied gemma", "nemotron"};
inline constexpr int kNumVariants = std::size(kVariantNames);

inline model::Architecture SmallModel(int64_t layers, Variant variant) {
  model::Architecture spec =
      SmallModel(layers, variant == Variant::kTiedLlama || variant == Variant::kTiedGemma);
  if (variant == Variant::kQwen3) spec.family = "qwen3";
  if (variant == Variant::kTiedGemma) spec.family = "gemma";
  if (variant == Variant::kNemotron) {
    spec.family = "nemotron";
    spec.rope.share = 0.4;
  }
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
