// From a recipe file and --set to a complete, checked Recipe. Everything that is wrong is reported at
// once, each with its place. Thread safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(LoadedRecipe loaded, LoadRecipe("r.toml", {"train.steps=50"}));
#pragma once

#include <map>
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
  // Values that make no difference with the others as they are, one sentence each.
  std::vector<std::string> notes;
};

// The real world: the process's working directory and environment, files of at most kMaxRecipeBytes.
Access RealAccess();

// UsageError with a line for each mistake. Reads config.json of model.from; expands data patterns.
absl::StatusOr<LoadedRecipe> LoadRecipe(const std::string& path, absl::Span<const std::string> sets = {},
                                        const Access& access = RealAccess());
// The same for text that stands for the file `path`.
absl::StatusOr<LoadedRecipe> LoadRecipeText(absl::string_view text, const std::string& path,
                                            absl::Span<const std::string> sets, const Access& access);

}  // namespace trainctl::recipe
