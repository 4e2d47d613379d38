// Identifies fields of a trainable model's config.json that do not affect what the model computes in
// training. Thread-safe.
#pragma once

#include <string>

#include "base/json_fwd.h"

namespace trainctl::model {

// Returns whether a field with this value has no effect. Returns true for null, because null means the
// default, as in transformers.
bool IsNeutral(const std::string& name, const Json& value);

// Returns whether the field turns a dropout on. Such a field is neutral, because trainctl trains without
// dropout, but training as its author did would differ.
bool IsDropout(const std::string& name, const Json& value);

// Returns the values with which the field has no effect, for messages: for example, "false". Empty if none
// are known.
std::string NeutralValuesOf(const std::string& name);

}  // namespace trainctl::model
