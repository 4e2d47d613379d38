// `trainctl plan --sweep KEY=V1,V2,...`: a plan for each combination, for scaling curves.
#pragma once

#include "absl/status/statusor.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/plan_options.h"

namespace trainctl::cli {

absl::StatusOr<ExitCode> SweepPlans(const PlanOptions& options, const Output& output);

}  // namespace trainctl::cli
