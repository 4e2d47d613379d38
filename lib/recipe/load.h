// Loads a recipe file and --set values into a complete, validated Recipe. Reports all mistakes at once, each
// with its location. Thread-safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(LoadedRecipe loaded, LoadRecipe("r.toml", {"train.steps=50"}));
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "recipe/access.h"
#include "recipe/origins.h"
#include "recipe/recipe.h"
#include "recipe/schema.h"

namespace trainctl::recipe {

struct LoadedRecipe {
  Recipe recipe;
  Origins origin;
  // Notes of one sentence each, such as the device chosen for cluster.device = "auto" or a value that has no
  // effect in combination with others.
  std::vector<std::string> notes;
  // Paths of the fields set by a file or a --set.
  std::set<std::string> stated;
  // Settings that a run requires and the recipe lacks, one sentence each. Filled in only for kPlan.
  std::vector<std::string> missing;
  // The error if train.epochs is set but the data could not be counted. Set only for kPlan.
  absl::Status unknown_length;
  Purpose purpose = Purpose::kTrain;
};

// Loads the recipe at `path`. Reads config.json from the model.from folder and expands data file patterns. If
// train.epochs sets the run's length and the recipe is otherwise valid, also counts the data. Returns
// UsageError with one line per mistake.
//
// With kPlan, the data and the length may be missing; LoadedRecipe::missing lists everything that a run still
// requires.
//
// With kWhatIf, a recipe whose plan.framework names another trainer is loaded only for an estimate. Its data
// is not read, and devices, parallel degrees, models, and pipeline orders that our own trainer does not
// support are accepted as written. Any other recipe is loaded as if for kPlan. LoadedRecipe::purpose says
// which of the two applied.
absl::StatusOr<LoadedRecipe> LoadRecipe(const std::string& path, absl::Span<const std::string> sets = {},
                                        const Access& access = RealAccess(),
                                        Purpose purpose = Purpose::kTrain);
// Like LoadRecipe, but parses `text` as the contents of the file at `path`.
absl::StatusOr<LoadedRecipe> LoadRecipeText(absl::string_view text, const std::string& path,
                                            absl::Span<const std::string> sets, const Access& access,
                                            Purpose purpose = Purpose::kTrain);

}  // namespace trainctl::recipe
