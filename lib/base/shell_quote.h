// Words of a command line that a message suggests, as a shell reads them. Pure; thread safe.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace trainctl {

// `word` as one word of bash, zsh and ksh: itself where nothing in it means anything to a shell, else in
// single quotes. What could steer a terminal (control characters) is escaped, as in $'a\033b'.
std::string ShellQuote(absl::string_view word);

}  // namespace trainctl
