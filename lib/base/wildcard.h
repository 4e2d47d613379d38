// Matches names against wildcard patterns, as optimizer.no_decay does. Pure; thread-safe.
#pragma once

#include "absl/strings/string_view.h"

namespace trainctl {

// Whether the whole of `name` matches `pattern`. "*" matches any sequence of characters, "?" matches exactly
// one character, and every other character matches itself.
bool MatchesWildcard(absl::string_view pattern, absl::string_view name);

}  // namespace trainctl
