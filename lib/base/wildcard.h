// Patterns over names, as in optimizer.no_decay. Pure; thread safe.
#pragma once

#include "absl/strings/string_view.h"

namespace trainctl {

// "*" stands for any characters, "?" for one; everything else for itself. The whole name must match.
bool MatchesWildcard(absl::string_view pattern, absl::string_view name);

}  // namespace trainctl
