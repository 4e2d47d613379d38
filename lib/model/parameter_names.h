// Names of parameters in Hugging Face folders and checkpoints, for the families that can be trained. All such
// names are in families.cc. Pure data; thread-safe.
#pragma once

#include "absl/strings/string_view.h"

namespace trainctl::model {

// Names of a family's modules, without ".weight" and ".bias". A module of a layer has the prefix `layers`,
// the layer's index (from 0) and a dot. For example, the query module of layer 3 is
// "model.layers.3.self_attn.q_proj". If no model of the family has a module, its name is not used.
struct ParameterNames {
  const char* embedding = nullptr;
  const char* layers = nullptr;  // "model.layers."
  const char* attention_norm = nullptr;
  const char* query = nullptr;
  const char* key = nullptr;
  const char* value = nullptr;
  const char* query_norm = nullptr;  // norm of each query head
  const char* key_norm = nullptr;
  const char* attention_output = nullptr;
  const char* mlp_norm = nullptr;  // not present if attention and MLP share a norm
  const char* gate = nullptr;
  const char* up = nullptr;
  const char* down = nullptr;
  const char* final_norm = nullptr;
  const char* head = nullptr;       // not present in models with tied embeddings
  const char* positions = nullptr;  // table of learned positions
  // Norms of what attention and MLP add to the residual stream.
  const char* after_attention_norm = nullptr;
  const char* after_mlp_norm = nullptr;
};

// Returns null if no trainable family (Architecture::family) has this name.
const ParameterNames* FindParameterNames(absl::string_view family);

}  // namespace trainctl::model
