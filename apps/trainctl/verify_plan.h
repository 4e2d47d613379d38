// The proof that a plan's layout gives the gradients of one process. It runs in the worker program, since
// this one never loads LibTorch.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "plan/plan.h"
#include "recipe/recipe.h"

namespace trainctl::cli {

// Replaces this process by the proof, which prints its outcome; returns only when that fails. `form`: "text",
// "json".
absl::Status ExecVerify(const recipe::ModelConfig& model, const plan::Plan& plan, const std::string& form);

// Runs the proof and tells its outcome on stderr: kOk, or kCheckFailed where a gradient is wrong.
// EnvironmentError: it could not be had.
absl::StatusOr<ExitCode> VerifyPlan(const recipe::ModelConfig& model, const plan::Plan& plan);

}  // namespace trainctl::cli
