// Compares names entered by users and suggests the ones they may have meant. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainctl {

// Returns only the letters, in lower case, and the digits of `text`. For example, "NVLink 4" and "nvlink-4"
// both become "nvlink4".
std::string NormalName(absl::string_view text);

// Returns `text` in quotes for a message, shortened and without control characters.
std::string QuotedName(absl::string_view text);

// Returns the minimum number of characters to insert, remove, or replace. Takes time proportional to |a| x
// |b|, so shorten long texts first.
int EditDistance(absl::string_view a, absl::string_view b);

// Returns the three entries of `names` with the smallest edit distance to `text`, as "a, b, c" for an error
// message.
std::string NearestNames(absl::string_view text, const std::vector<std::string>& names);

}  // namespace trainctl
