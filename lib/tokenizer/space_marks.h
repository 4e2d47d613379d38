// sentencepiece's mark for a space (U+2581), and a way to split a text at these marks. If tokens contain the
// mark only at their front, no token crosses from one part into the next. Thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace trainctl::tokenizer {

inline constexpr absl::string_view kSpaceMark = "\xE2\x96\x81";

// Whether a token contains the mark after another character.
inline bool HasMarkInside(absl::string_view token) {
  while (absl::ConsumePrefix(&token, kSpaceMark)) {
  }
  return absl::StrContains(token, kSpaceMark);
}

// Calls `see` with each part, which is a run of marks and the text up to the next mark. No part is empty.
template <typename See>
void ForEachMarkedPart(absl::string_view text, const See& see) {
  while (!text.empty()) {
    size_t end = 0;
    while (absl::StartsWith(text.substr(end), kSpaceMark)) end += kSpaceMark.size();
    end = std::min(text.find(kSpaceMark, end), text.size());
    see(text.substr(0, end));
    text.remove_prefix(end);
  }
}

}  // namespace trainctl::tokenizer
