// Models that tables name without giving all their sizes. The trainer's presets are elsewhere
// (model/presets); these are what the planner needs to price what others have run.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "model/model_spec.h"

namespace trainctl::pricing {

struct KnownModel {
  const char* pattern = "";  // in the name, letters and digits alone, lower case
  const char* source = "";   // where the sizes stand
  model::ModelSpec spec;
};

absl::Span<const KnownModel> KnownModels();

// The first row whose pattern is in `name`, or null.
const KnownModel* FindKnownModel(absl::string_view name);

// What a family has beyond its sizes: gates, biases, norms, tied embeddings, a table of positions
// (`seq_len` rows where there is one). `name` decides; a name that says nothing is a Llama.
// Returns the name of the family that was taken.
std::string ApplyFamily(absl::string_view name, int64_t seq_len, model::ModelSpec& spec);

// Letters and digits of `text`, in lower case.
std::string Normalized(absl::string_view text);

}  // namespace trainctl::pricing
