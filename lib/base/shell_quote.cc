#include "base/shell_quote.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace trainctl {
namespace {

bool IsHarmless(char c) {
  return static_cast<uint8_t>(c) >= 0x80 || absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::StrContains("_-./=:,+@%", c);
}

// ASCII's control characters, and the second 32 of them, which are two bytes in UTF-8.
bool HasControls(absl::string_view word) {
  for (size_t i = 0; i < word.size(); ++i) {
    const auto next = i + 1 < word.size() ? static_cast<uint8_t>(word[i + 1]) : uint8_t{0};
    if (absl::ascii_iscntrl(static_cast<unsigned char>(word[i]))) return true;
    if (static_cast<uint8_t>(word[i]) == 0xC2 && next >= 0x80 && next < 0xA0) return true;
  }
  return false;
}

}  // namespace

std::string ShellQuote(absl::string_view word) {
  if (HasControls(word)) {
    std::string quoted = "$'";
    for (const char c : word) {
      if (c == '\'' || c == '\\') {
        absl::StrAppend(&quoted, "\\", std::string(1, c));
      } else if (absl::ascii_isprint(static_cast<unsigned char>(c))) {
        quoted += c;
      } else {
        // Three octal digits end by themselves, whatever follows; hexadecimal ones do not everywhere.
        absl::StrAppendFormat(&quoted, "\\%03o", static_cast<uint8_t>(c));
      }
    }
    return quoted + "'";
  }
  if (!word.empty() && std::all_of(word.begin(), word.end(), IsHarmless)) return std::string(word);
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

}  // namespace trainctl
