// Selects parameters by group or by name, as optimizer.no_decay does. Pure; thread-safe.
#pragma once

#include <array>

#include "absl/strings/string_view.h"
#include "model/parameters.h"

namespace trainctl::model {

// The groups: the weights of norms, all biases (including those of norms), and the tables of tokens and
// positions. They do not depend on the names that a family uses.
inline constexpr std::array<const char*, 3> kParameterGroups = {"norms", "biases", "embeddings"};

// Returns whether `selector` is the parameter's group or a pattern (base/wildcard.h) that matches its name.
bool IsSelected(absl::string_view selector, const Parameter& parameter);

}  // namespace trainctl::model
