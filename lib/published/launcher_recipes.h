// What NeMo's launcher ran behind its published table: settings of its own configuration files that the
// table leaves out.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "frameworks/workload.h"

namespace trainctl::published {

// Fills in what its recipe for that model says of states, and of virtual stages unless the row states them.
// `mode` is found in `notes`: "pretrain", "SFT" or "LoRA". Returns where the recipe stands; empty: there is
// none, and nothing was changed.
std::string ApplyLauncherRecipe(absl::string_view model, absl::string_view notes, bool states_virtual_stages,
                                frameworks::Workload& workload);

}  // namespace trainctl::published
