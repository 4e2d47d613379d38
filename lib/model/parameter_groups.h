// Selects parameters by group or by name, as optimizer.no_decay does. Pure; thread-safe.
#pragma once

#include <array>

#include "absl/strings/string_view.h"
#include "model/parameters.h"

namespace trainctl::model {

// The groups, whatever the family calls its parameters: the weights of norms; biases, including those of
// norms; and the tables of tokens and positions.
inline constexpr std::array<const char*, 3> kParameterGroups = {"norms", "biases", "embeddings"};

// Whether `selector` is the parameter's group, or a pattern (base/wildcard.h) that matches its name.
bool IsSelected(absl::string_view selector, const Parameter& parameter);

}  // namespace trainctl::model
