// Which model a published table means by a name. Tables give some sizes, or none; the models themselves are
// in lib/model. Pure; thread safe.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "model/architecture.h"
#include "model/presets.h"

namespace trainctl::published {

// The model whose name is in `name`, or null. Of a Llama tables give every size, so none is looked up.
const model::NamedModel* FindKnownModel(absl::string_view name);

// Sets what a family has beyond its sizes: gates, biases, norms, tied embeddings, a table of positions
// (`seq_len` rows where there is one), and its name. `name` decides; a name that says nothing is a Llama.
void ApplyFamily(absl::string_view name, int64_t seq_len, model::Architecture& spec);

}  // namespace trainctl::published
