// Handles paths in recipes: ${VAR} references, relative paths, and glob patterns. Errors do not include the
// location of the path in the recipe; the caller adds it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::recipe {

using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Replaces each ${VAR}. Returns UsageError if a variable is undefined or a reference is unterminated. Leaves
// any other "$" unchanged.
absl::StatusOr<std::string> ExpandVariables(absl::string_view text, const Environment& environment);

// Like AbsolutePath (folder_paths.h), but for a pattern. Escapes wildcard characters in `folder`.
std::string AbsolutePattern(absl::string_view pattern, absl::string_view folder);

// Returns a pattern that matches only `text`.
std::string LiteralPattern(absl::string_view text);
// Returns the text matched by a pattern that has no wildcards.
std::string TextOfPattern(absl::string_view pattern);

// Whether the pattern contains an unescaped "*", "?", or "[".
bool HasWildcard(absl::string_view pattern);

// Returns the regular files that match an absolute pattern, in byte order. "*", "?", and "[...]" do not match
// "/" or a leading "."; a "**" component matches any number of folders without following symbolic links. A
// backslash escapes the next character. If a file with the pattern's literal name exists, the pattern matches
// only that file.
//
// Returns UsageError if nothing matches, naming the pattern and the folder where the search ended, or if a
// path without wildcards is not a regular file.
absl::StatusOr<std::vector<std::string>> ExpandGlob(const std::string& pattern);

}  // namespace trainctl::recipe
