// Names of the parts of a layer that selective recompute runs again, as Megatron-LM's --recompute-modules has
// them. Pure; thread safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace trainctl::published {

// "mla_up_proj+mlp" becomes bits of frameworks::RecomputeModule. False if a name is not known.
bool ParseRecomputeModules(absl::string_view text, uint32_t& modules);
std::string RecomputeModulesText(uint32_t modules);

}  // namespace trainctl::published
