// Paths in recipes: ${VAR}, relative paths and patterns. Errors have no place; the caller adds it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::recipe {

using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Replaces ${VAR}; an undefined or unterminated one is a UsageError. "$" elsewhere is itself.
absl::StatusOr<std::string> ExpandVariables(absl::string_view text, const Environment& environment);

// UsageError: `text` is a URL; it has the command that fetches what is there.
absl::Status RefuseUrl(absl::string_view text);

// `path` relative to `folder`, made absolute and normal ("/a/./b/../c" is "/a/c").
std::string AbsolutePath(absl::string_view path, absl::string_view folder);

// The same for a pattern: in the result the characters of `folder` are literal, whatever they are.
std::string AbsolutePattern(absl::string_view pattern, absl::string_view folder);

// Whether the pattern has a "*", "?" or "[" that no backslash makes literal.
bool HasWildcard(absl::string_view pattern);

// The regular files that match an absolute pattern, sorted by bytes. "*", "?" and "[...]" do not match
// "/" nor a leading "."; a component "**" matches any number of folders (symbolic links to folders
// are not followed there). A backslash makes the next character literal. A pattern that is the name of a file
// as it stands means that file. UsageError when nothing matches, naming the pattern and the folder in
// which the search ended, or when a plain path is not a regular file.
absl::StatusOr<std::vector<std::string>> ExpandGlob(const std::string& pattern);

}  // namespace trainctl::recipe
