// Escapes text so that it cannot become part of a page's markup. Pure functions; thread-safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "base/json_fwd.h"

namespace trainctl::report {

// Escapes text for use between tags or in a quoted attribute. Invalid UTF-8 becomes U+FFFD.
std::string EscapedHtml(absl::string_view text);

// Formats JSON for use in a script element, such that no part of it looks like a tag. Invalid UTF-8 becomes
// U+FFFD.
std::string ScriptSafe(const Json& json);

}  // namespace trainctl::report
