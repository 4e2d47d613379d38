// Compares names that people write, and finds the ones they may have meant. Pure; thread safe.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainctl {

// Lower-case letters and digits alone: "NVLink 4" and "nvlink-4" are both "nvlink4".
std::string NormalName(absl::string_view text);

// `text` in quotes for a message, shortened and without control characters.
std::string QuotedName(absl::string_view text);

// Characters to insert, remove or replace. Takes |a| x |b| steps: cut a text of unknown length first.
int EditDistance(absl::string_view a, absl::string_view b);

// The three of `names` that need the fewest edits to become `text`, for an error message: "a, b, c".
std::string NearestNames(absl::string_view text, const std::vector<std::string>& names);

}  // namespace trainctl
