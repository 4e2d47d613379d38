// What the recipes behind published runs switch on and their tables do not print: known by the release that
// the notes name, from the repositories of those recipes. Pure; thread safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "pricing/workload.h"

namespace trainctl::pricing {

// Sets on `workload` what the recipe of its run sets, and returns it in words; empty where nothing is known.
// `model` and `notes` are the row's.
std::string ApplyPublishedRecipe(absl::string_view model, absl::string_view notes, Workload& workload);

}  // namespace trainctl::pricing
