// `trainctl plan` for our own trainer: what `trainctl launch` runs.
#pragma once

#include "absl/status/statusor.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/plan_options.h"
#include "recipe/load.h"

namespace trainctl::cli {

absl::StatusOr<ExitCode> PlanOurs(const recipe::LoadedRecipe& loaded, const PlanOptions& options,
                                  const Output& output);

}  // namespace trainctl::cli
