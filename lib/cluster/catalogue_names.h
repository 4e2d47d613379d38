// How the catalogue compares names that people write. Pure; thread safe.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainctl::cluster {

// Lower-case letters and digits alone: "NVLink 4" and "nvlink-4" are both "nvlink4".
std::string NormalName(absl::string_view text);

// `text` in quotes for a message, shortened and without control characters.
std::string Quoted(absl::string_view text);

// The three of `names` that need the fewest edits to become `text`, for an error message: "a, b, c".
std::string NearestNames(absl::string_view text, const std::vector<std::string>& names);

}  // namespace trainctl::cluster
