// What the families that can be trained call their parameters in Hugging Face folders and checkpoints: the
// one place where such names stand. Pure data; thread safe.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainctl::model {

// Without ".weight" and ".bias". Those of a layer follow `layers`, its number from 0 and a dot.
struct ParameterNames {
  const char* family;  // ModelSpec::family
  const char* embedding;
  const char* layers;  // "model.layers."
  const char* attention_norm;
  const char* query;
  const char* key;
  const char* value;
  const char* attention_output;
  const char* mlp_norm;
  const char* gate;
  const char* up;
  const char* down;
  const char* final_norm;
  const char* head;  // absent where the embedding serves
};

// Null: no such family can be trained.
const ParameterNames* FindParameterNames(absl::string_view family);

// The families that have names, in the order of the table.
std::vector<std::string> NamedFamilies();

}  // namespace trainctl::model
