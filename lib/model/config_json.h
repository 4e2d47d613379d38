// Hugging Face config.json, both ways: of every decoder family that can be described into a ModelSpec, and of
// what this version trains back. Pure; thread safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(model::ConfigModel mixtral, model::ReadConfigJson(text, "m/config.json"));
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "model/model_spec.h"
#include "model/special_tokens.h"

namespace trainctl::model {

struct ConfigModel {
  ModelSpec spec;
  std::string model_type;
  // Fields of a model of the trainer's own family that change what it computes, or may, and that a ModelSpec
  // has no place for; in words. WhyNotTrainable(spec) has the rest.
  std::vector<std::string> unknown_fields;
};

// Reads what the model is; a field that changes none of the spec is not looked at. `what` names the text in
// errors. BadDataError naming the field: an unknown model_type (with those that are known), a size that is
// missing, no number or not possible, a layout of experts that is not "some dense layers first".
absl::StatusOr<ConfigModel> ReadConfigJson(absl::string_view json_text, absl::string_view what);

// The values of model_type that ReadConfigJson knows, in order.
std::vector<std::string> ConfigModelTypes();
// Those of them that FromHuggingFaceConfig takes.
std::vector<std::string> TrainedModelTypes();

// For training: BadDataError as well where this version cannot train the model exactly as it is described,
// with every reason. A field that would change the mathematics and is not known is an error, never ignored.
absl::StatusOr<ModelSpec> FromHuggingFaceConfig(absl::string_view json_text, absl::string_view what);

// `spec` must be trainable. Ids that `tokens` lacks are null, lest a reader puts its own in their place.
std::string ToHuggingFaceConfig(const ModelSpec& spec, DType dtype, const SpecialTokens& tokens = {});

}  // namespace trainctl::model
