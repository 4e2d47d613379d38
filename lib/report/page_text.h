// Texts that go into a page without becoming part of its markup. Pure; thread safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "base/json.h"

namespace trainctl::report {

// Text between tags or in a quoted attribute. Bytes that are not UTF-8 become U+FFFD.
std::string EscapedHtml(absl::string_view text);

// JSON for a script element: no part of it looks like a tag. Bytes that are not UTF-8 become U+FFFD.
std::string ScriptSafe(const Json& json);

}  // namespace trainctl::report
