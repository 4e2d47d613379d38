#include "recipe/model_folder.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/lfs_pointer.h"
#include "base/shell_quote.h"
#include "base/status.h"
#include "recipe/trained_model.h"

namespace trainctl::recipe {

std::string TokenizerOfFolder(const std::string& folder, const Access& access) {
  for (const char* name : {"/tokenizer.json", "/tokenizer.model"}) {
    if (access.is_file && access.is_file(folder + name)) return folder + name;
  }
  return "";
}

std::string HowToFetch(const std::string& folder, const Access& access) {
  if (!absl::StartsWith(folder, access.working_dir + "/") || access.is_folder(folder)) return "";
  const std::string name = folder.substr(access.working_dir.size() + 1);
  if (std::count(name.begin(), name.end(), '/') != 1 || absl::StartsWith(name, ".")) return "";
  const std::string quoted = ShellQuote(name);
  return absl::StrCat("; to download this model from the Hugging Face Hub: hf download ", quoted,
                      " --local-dir ", quoted);
}

absl::StatusOr<Recipe> RecipeOfFolder(const std::string& folder, const Access& access) {
  const std::string config = absl::StrCat(folder, "/config.json");
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, access.read_file(config));
  TRAINCTL_RETURN_IF_ERROR(RefuseLfsPointer(text, config));
  Recipe recipe;
  recipe.model.from = folder;
  recipe.model.weights = "from";
  TRAINCTL_ASSIGN_OR_RETURN(const model::ConfigModel model, ReadTrainedModel(text, config));
  recipe.model.spec = model.spec;
  if (std::string file = TokenizerOfFolder(folder, access); !file.empty()) recipe.data.tokenizer = file;
  recipe.data.seq_len = std::min(recipe.data.seq_len, recipe.model.spec.max_position);
  recipe.train.batch_sequences = 1;
  return recipe;
}

}  // namespace trainctl::recipe
