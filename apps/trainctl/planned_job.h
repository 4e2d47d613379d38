// A plan made ready to run: the files that its workers read, and the launcher's options.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/job.h"
#include "plan/plan.h"
#include "recipe/recipe.h"
#include "run/run_folder.h"

namespace trainctl::cli {

// Of a new run: what it keeps of its model's folder (run/model_files.h). BadDataError: that folder's ids are
// no ids.
absl::Status KeepModelFiles(const run::RunFolder& run, const recipe::Recipe& recipe);

// The end-of-text ids in generation_config.json and config.json of the recipe's model. Empty if neither file
// exists. BadDataError if the values are not ids.
absl::StatusOr<std::vector<int64_t>> EndIdsOfModel(const recipe::Recipe& recipe);

// Complete before the first worker starts.
absl::Status WriteRunFiles(const run::RunFolder& run, const recipe::Recipe& recipe, const plan::Plan& plan);

// `run`, whose files are written, must outlive the job. EnvironmentError: the worker program is not there.
absl::StatusOr<launcher::JobOptions> PlannedJob(run::RunFolder& run, const recipe::Recipe& recipe,
                                                const plan::Plan& plan);

}  // namespace trainctl::cli
