#include "recipe/trained_model.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "model/config_json.h"

namespace trainctl::recipe {

std::string WhatElseOf(const model::Architecture& spec, const absl::Status& refusal) {
  if (refusal.ok() || !model::Validate(spec).ok() || model::WhyNotTrainable(spec).empty()) return "";
  return absl::StrCat(". This version trains model_type ", absl::StrJoin(model::TrainedModelTypes(), ", "),
                      "; you can still plan this model for another trainer and accelerator: trainctl plan "
                      "RECIPE --as megatron-core --set cluster.device=h100");
}

absl::StatusOr<model::Architecture> ReadTrainedModel(absl::string_view config_json, absl::string_view what) {
  TRAINCTL_ASSIGN_OR_RETURN(const model::ConfigModel model, model::ReadConfigJson(config_json, what));
  absl::StatusOr<model::Architecture> trained = model::FromHuggingFaceConfig(config_json, what);
  if (trained.ok()) return trained;
  return absl::Status(trained.status().code(),
                      absl::StrCat(trained.status().message(), WhatElseOf(model.spec, trained.status())));
}

}  // namespace trainctl::recipe
