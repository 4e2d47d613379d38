// The table of models that recipes can refer to by name. Pure; thread-safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(model::Architecture spec, model::Preset("llama3.1-8b"));
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "model/architecture.h"

namespace trainctl::model {

// A named model. Some can be trained; the others can only be planned.
struct NamedModel {
  const char* name = "";    // value of model.preset in a recipe
  const char* source = "";  // publication or file that states the sizes
  Architecture spec;
};

// Returns all models, sorted by number of parameters from "toy-1m" to "kimi-k2".
absl::Span<const NamedModel> NamedModels();

// Returns the model of this name. Ignores case, spaces and punctuation, so "Llama 3.1 8B" is valid. Returns
// UsageError with the valid names if there is no such model.
absl::StatusOr<Architecture> Preset(absl::string_view name);

// Return the names of the models that can be trained, and of those that can only be planned. Both are sorted
// by number of parameters.
std::vector<std::string> PresetNames();
std::vector<std::string> PlannedPresetNames();

}  // namespace trainctl::model
