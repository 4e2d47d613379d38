// Reads the model and tokenizer configuration of a Hugging Face folder, without the weights. Used for recipes
// with model.from and for commands that operate on such a folder without a run. Thread-safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(Recipe recipe, RecipeOfFolder("/models/qwen", RealAccess()));
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "recipe/access.h"
#include "recipe/recipe.h"

namespace trainctl::recipe {

// Returns the tokenizer file to use if the recipe names none: tokenizer.json or tokenizer.model. Empty if the
// folder contains neither.
std::string TokenizerOfFolder(const std::string& folder, const Access& access);

// Returns a clause to append to the error for a folder that does not exist: the command that downloads the
// model. Empty if the folder's name does not look like a Hugging Face Hub name ("Qwen/Qwen2.5-0.5B").
std::string HowToFetch(const std::string& folder, const Access& access);

// Returns a recipe for evaluating, and generating text with, the model in `folder` (an absolute path). It
// uses the folder's weights and tokenizer ("byte" if there is no tokenizer) and has no data. data.seq_len is
// the default value or the longest sequence of the model, whichever is less. Returns UsageError if there is
// no config.json, or BadDataError if it is damaged or describes a model that this version cannot train.
absl::StatusOr<Recipe> RecipeOfFolder(const std::string& folder, const Access& access);

}  // namespace trainctl::recipe
