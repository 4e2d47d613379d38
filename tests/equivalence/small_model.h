// The model of the equivalence matrices: heads of keys that several ranks share, a vocabulary that divides by
// nothing.
#pragma once

#include "model/model_spec.h"

namespace trainctl::equivalence {

inline model::ModelSpec SmallModel(int64_t layers, bool tied) {
  model::ModelSpec spec;
  spec.layers = layers;
  spec.hidden = 40;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.head_dim = 10;
  spec.ffn = 56;
  spec.vocab = 211;
  spec.tie_embeddings = tied;
  spec.qkv_bias = true;
  spec.init_std = 0.1;
  return spec;
}

}  // namespace trainctl::equivalence
