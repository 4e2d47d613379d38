// Converts bytes of unknown origin to text that is safe to print and to transmit. Pure; thread-safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace trainctl::launcher {

// Returns `bytes` with invalid UTF-8 bytes and control characters (NUL, ESC, CR, ...) replaced by U+FFFD.
// Keeps valid UTF-8 and tabs; keeps newlines only if `keep_newlines` is true.
std::string PrintableText(absl::string_view bytes, bool keep_newlines = false);

}  // namespace trainctl::launcher
