#include "recipe/trained_model.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace trainctl::recipe {

std::string WhatElseOf(const model::Architecture& spec, const absl::Status& refusal) {
  if (refusal.ok() || !model::Validate(spec).ok() || model::WhyNotTrainable(spec).empty()) return "";
  return absl::StrCat(". This version trains model_type ", absl::StrJoin(model::TrainedModelTypes(), ", "),
                      "; you can still plan this model for another trainer and accelerator: trainctl plan "
                      "RECIPE --as megatron-core --set cluster.device=h100");
}

absl::StatusOr<model::ConfigModel> ReadTrainedModel(absl::string_view config_json, absl::string_view what) {
  TRAINCTL_ASSIGN_OR_RETURN(model::ConfigModel model, model::ReadConfigJson(config_json, what));
  const absl::Status trained = model::FromHuggingFaceConfig(config_json, what).status();
  if (trained.ok()) return model;
  return absl::Status(trained.code(), absl::StrCat(trained.message(), WhatElseOf(model.spec, trained)));
}

}  // namespace trainctl::recipe
