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
  // With kPlan: what a run needs and is not there. One sentence each.
  std::vector<std::string> missing;
  Purpose purpose = Purpose::kTrain;
};

// The real world: the process's working directory and environment, files of at most kMaxRecipeBytes.
Access RealAccess();

// UsageError with a line for each mistake. Reads config.json of model.from; expands data patterns.
//
// With kPlan data and length may be missing: LoadedRecipe::missing lists what a run lacks. With kWhatIf a
// recipe whose plan.framework is another trainer's is read for pricing: the data is not looked at, and
// devices, degrees, models and pipeline orders that our own trainer does not run are taken as written. Any
// other recipe is then read for kPlan; LoadedRecipe::purpose says which.
absl::StatusOr<LoadedRecipe> LoadRecipe(const std::string& path, absl::Span<const std::string> sets = {},
                                        const Access& access = RealAccess(),
                                        Purpose purpose = Purpose::kTrain);
// The same for text that stands for the file `path`.
absl::StatusOr<LoadedRecipe> LoadRecipeText(absl::string_view text, const std::string& path,
                                            absl::Span<const std::string> sets, const Access& access,
                                            Purpose purpose = Purpose::kTrain);

}  // namespace trainctl::recipe
