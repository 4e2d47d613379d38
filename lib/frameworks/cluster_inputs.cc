#include "frameworks/cluster_inputs.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "frameworks/layer_work.h"

namespace trainctl::frameworks {

using recipe::LoadedRecipe;

std::string AtField(const LoadedRecipe& loaded, const std::string& path, absl::string_view message) {
  const auto origin = loaded.origin.find(path);
  const bool is_stated = loaded.stated.count(path) > 0 && origin != loaded.origin.end();
  return is_stated ? absl::StrCat(origin->second, ": ", message) : std::string(message);
}

PlannedModel ModelOf(const LoadedRecipe& loaded) {
  const recipe::ModelConfig& m = loaded.recipe.model;
  const std::filesystem::path folder(m.from);
  PlannedModel model;
  model.name = !m.preset.empty() ? m.preset
               : m.from.empty()  ? m.spec.family
                                : (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  model.spec = m.spec;
  model.notes = LeftOut(m.spec);
  return model;
}

}  // namespace trainctl::frameworks
