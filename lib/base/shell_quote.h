// Quotes words in suggested command lines. Pure; thread-safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace trainctl {

// Quotes `word` as a single word for bash, zsh, and ksh. Returns it unchanged if it has no special
// characters, and otherwise in single quotes. Escapes characters that could control a terminal, as in
// $'a\033b'.
std::string ShellQuote(absl::string_view word);

}  // namespace trainctl
