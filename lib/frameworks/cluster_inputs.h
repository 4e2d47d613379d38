// What a recipe says of its model, in the words of the prices. Internal to the
// planning for clusters. Pure; thread safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/architecture.h"
#include "recipe/load.h"

namespace trainctl::frameworks {

struct PlannedModel {
  std::string name;  // of the preset, the folder or the family
  model::Architecture spec;
  std::vector<std::string> notes;
};

PlannedModel ModelOf(const recipe::LoadedRecipe& loaded);

// `message` with the place where the recipe states `path`, if it does.
std::string AtField(const recipe::LoadedRecipe& loaded, const std::string& path, absl::string_view message);

}  // namespace trainctl::frameworks
