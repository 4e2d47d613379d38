// Updates the config.json of the folder that a model came from, for the model after training. Pure;
// thread-safe.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "model/architecture.h"
#include "model/special_tokens.h"

namespace trainctl::model {

// Returns `config_json` with new values for the fields that do not describe `spec`, `dtype` (the type of the
// weights) and `tokens`. Keeps every other byte, so that fields that trainctl does not use are not lost.
// FromHuggingFaceConfig reads the same layers and other fields from the result.
//
// Returns nullopt if `config_json` cannot be updated, for example because it describes a model of another
// model_type. Use ToHuggingFaceConfig then. `spec` must be trainable.
std::optional<std::string> UpdateConfig(absl::string_view config_json, const Architecture& spec, DType dtype,
                                        const SpecialTokens& tokens);

}  // namespace trainctl::model
