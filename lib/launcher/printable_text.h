// Bytes of unknown origin as text that is safe to print and to send. Pure; thread safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace trainctl::launcher {

// Valid UTF-8 stays; every other byte and every control character (NUL, ESC, CR, ...) but tab
// becomes U+FFFD. Newlines stay only when asked for.
std::string PrintableText(absl::string_view bytes, bool keep_newlines = false);

}  // namespace trainctl::launcher
