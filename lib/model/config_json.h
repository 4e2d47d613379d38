// Converts a Hugging Face config.json to an Architecture, for every decoder family that an Architecture can
// describe. For models that this version trains, also converts an Architecture to a config.json. Pure;
// thread-safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(model::ConfigModel mixtral, model::ReadConfigJson(text, "m/config.json"));
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "model/architecture.h"
#include "model/special_tokens.h"

namespace trainctl::model {

struct ConfigModel {
  Architecture spec;
  std::string model_type;
  // Messages about fields that change, or may change, the computation and that Architecture cannot represent.
  // Only filled for the families in TrainedModelTypes(). WhyNotTrainable(spec) returns the other obstacles to
  // training.
  std::vector<std::string> unknown_fields;
  // The fields that turn a dropout on, such as "attention_dropout = 0.1". trainctl trains without dropout.
  // Only filled for the families in TrainedModelTypes().
  std::vector<std::string> dropouts;
};

// Reads the architecture from the text of a config.json. `what` names the text in errors. Returns
// BadDataError, which names the field, in the following cases: the model_type is unknown (the message lists
// the known ones), a size is missing or invalid, or a dense layer follows a layer with experts. All other
// fields are ignored if this version does not train the family; otherwise, see ConfigModel::unknown_fields.
//
// If the text has fewer layers than `least_layers`, extends the model to that number. The rules of its family
// determine which of the added layers have a window or experts.
absl::StatusOr<ConfigModel> ReadConfigJson(absl::string_view json_text, absl::string_view what,
                                           int64_t least_layers = 0);

// Returns the values of model_type that ReadConfigJson accepts, sorted.
std::vector<std::string> ConfigModelTypes();
// Returns the values of model_type that FromHuggingFaceConfig accepts.
std::vector<std::string> TrainedModelTypes();

// Reads a model for training. Returns the errors of ReadConfigJson, and BadDataError with the reasons if this
// version cannot train the model exactly as described. An unknown field that may change the computation is an
// error and is never ignored.
absl::StatusOr<Architecture> FromHuggingFaceConfig(absl::string_view json_text, absl::string_view what);

// Returns the model_type that ToHuggingFaceConfig writes: the family, or "qwen2" for a "llama" with biases on
// queries, keys and values only. `spec` must be trainable.
std::string ModelTypeOf(const Architecture& spec);

// Returns the text of a config.json. `spec` must be trainable, and `dtype` is the element type of the
// weights. A token id that `tokens` does not contain is written as null, so that a reader does not use its
// own default.
std::string ToHuggingFaceConfig(const Architecture& spec, DType dtype, const SpecialTokens& tokens = {});

}  // namespace trainctl::model
