// The models that this version trains, as opposed to those that it can only plan for another trainer. Pure;
// thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/architecture.h"
#include "model/config_json.h"

namespace trainctl::recipe {

// Returns advice to append to `refusal`, the error that says why the model cannot be trained. The advice
// explains how to plan the model for another trainer. Returns "" if that is not possible either.
std::string WhatElseOf(const model::Architecture& spec, const absl::Status& refusal);

// Parses `config_json` into a model that this version can train, without the dropout that it may have.
// Returns BadDataError if it cannot train exactly that model; the message lists every reason, followed by the
// advice from WhatElseOf. `what` names the text in error messages.
absl::StatusOr<model::ConfigModel> ReadTrainedModel(absl::string_view config_json, absl::string_view what);

}  // namespace trainctl::recipe
