// What a launch needs of this machine beyond its recipe and plan: a device, data, first weights, room for
// checkpoints, the worker program. `launch`, `resume`, their dry runs and `recipe check --all` ask here, so
// that none passes over what another one finds. Reads headers of weights and opens data; starts nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "apps/trainctl/command.h"
#include "cluster/host.h"
#include "data/batch_source.h"
#include "data/kept_documents.h"
#include "recipe/load.h"
#include "run/run_folder.h"

namespace trainctl::cli {

struct LaunchNeeds {
  std::vector<absl::Status> missing;
  std::vector<std::string> notes;     // about the data and the disk
  std::string end_of_document;        // data.end_of_document as it is from now on
  std::vector<data::SourceUse> uses;  // of a launch; empty if the data cannot be opened
};

// All that is missing, in the order in which a launch would meet it: UsageError for what the recipe lacks or
// a path that matches nothing, EnvironmentError for what is absent, BadDataError for what is damaged.
// `run_dir`: --run-dir, or empty for a new folder below run.root. Shows on stderr how far reading large data
// is.
LaunchNeeds FindMissing(const recipe::Recipe& recipe, const cluster::Host& host, const std::string& run_dir,
                        const Output& output, data::KeptDocuments* kept = nullptr);
// The same for a run that goes on: what it has begun with is not needed, unless it begins again at step 1.
LaunchNeeds FindMissingToContinue(const recipe::Recipe& recipe, const cluster::Host& host,
                                  const run::RunFolder& run, bool begins_again);

// Reads large data that the run does not keep, or not as it is now, for `kept`.
absl::Status ReadToKeep(const recipe::Recipe& recipe, const Output& output, data::KeptDocuments& kept);

// What a checkpoint takes: the parameters in train.master_dtype, and the optimizer's state. Manifests take a
// few KiB more.
int64_t CheckpointBytes(const recipe::Recipe& recipe);
// What the checkpoints of a run may come to take, in bytes.
int64_t CheckpointRoomBytes(const recipe::Recipe& recipe);

// What the recipe was read without (recipe::Purpose::kPlan) as errors; `unset` as of PlanAccess.
std::vector<absl::Status> LacksOfRecipe(const recipe::LoadedRecipe& loaded,
                                        const std::vector<std::string>& unset);

// One error of all: the code of the first, a line for each. OK: nothing is missing.
absl::Status AsOneError(const std::vector<absl::Status>& missing);

// Each different text once, without the code. Omits a text that an earlier one repeats after a location.
std::vector<std::string> TextsOf(const std::vector<absl::Status>& missing);

bool HoldsARun(const std::string& folder);
// True if the run in `folder` has done a step, has a checkpoint, or is a job of a batch system. A launch that
// failed before its first step leaves a run without any of these.
bool HoldsWork(const std::string& folder);
absl::Status AlreadyHoldsARun(const std::string& folder);

}  // namespace trainctl::cli
