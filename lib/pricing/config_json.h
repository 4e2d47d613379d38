// A Hugging Face config.json as a ModelSpec: the sizes of dense, grouped-query and mixture-of-experts
// decoders, with what each family has that its file does not say. Wider than the trainer's own reader
// (model/model_spec.h), and laxer: a field that changes no size is not looked at. Pure; thread safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/model_spec.h"

namespace trainctl::pricing {

struct ConfigModel {
  model::ModelSpec spec;
  std::string model_type;
  std::vector<std::string> notes;  // what the price leaves out or takes more simply than it is
};

// `what` names the text in errors. BadDataError naming the field: an unknown model_type (with those that are
// known), a size that is missing, no number or not possible, a layout of experts that is not "some dense
// layers first".
absl::StatusOr<ConfigModel> FromConfigJson(absl::string_view text, absl::string_view what);

std::vector<std::string> ConfigModelTypes();

}  // namespace trainctl::pricing
