// From a recipe file and --set to a complete, checked Recipe. Everything that is wrong is reported at
// once, each with its place. Thread safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(LoadedRecipe loaded, LoadRecipe("r.toml", {"train.steps=50"}));
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "recipe/layers.h"
#include "recipe/recipe.h"

namespace trainctl::recipe {

struct LoadedRecipe {
  Recipe recipe;
  // Where each value came from: "train.steps" -> "base/llama.toml:12:1", "default", "--set".
  std::map<std::string, std::string> origin;
  // What cluster.device = "auto" became; values that make no difference with the others as they are. One
  // sentence each.
  std::vector<std::string> notes;
  // The paths that a file or a --set has stated.
  std::set<std::string> stated;
  Purpose purpose = Purpose::kTrain;
};

// The real world: the process's working directory and environment, files of at most kMaxRecipeBytes.
Access RealAccess();

// UsageError with a line for each mistake. Reads config.json of model.from; expands data patterns.
//
// With kPlan a recipe whose cluster.device is not "cpu" is read for planning: the data is not looked at and
// may be missing, train.steps may be missing (0), and devices, degrees, models and schedules that only the
// planner knows are taken as they are written; the planner checks them. LoadedRecipe::purpose says so. On a
// CPU kPlan is kTrain: there the plan is for our own trainer.
absl::StatusOr<LoadedRecipe> LoadRecipe(const std::string& path, absl::Span<const std::string> sets = {},
                                        const Access& access = RealAccess(),
                                        Purpose purpose = Purpose::kTrain);
// The same for text that stands for the file `path`.
absl::StatusOr<LoadedRecipe> LoadRecipeText(absl::string_view text, const std::string& path,
                                            absl::Span<const std::string> sets, const Access& access,
                                            Purpose purpose = Purpose::kTrain);

}  // namespace trainctl::recipe
