// Generates docs/reference/models.md from the tables of families and presets. Pure; thread-safe.
#pragma once

#include <string>

namespace trainctl::model {

std::string ModelsPage();

}  // namespace trainctl::model
