// UTF-8 and Unicode normalization. Thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::tokenizer {

bool IsUtf8(absl::string_view text);

// Returns `text` with each maximal ill-formed part replaced by U+FFFD (see table 3-8 of the Unicode
// Standard).
std::string RepairUtf8(absl::string_view text);

// Returns `text` itself if it is UTF-8; otherwise stores the result of RepairUtf8 in `repaired` and returns
// that. Returns BadDataError if the result is longer than `max_bytes`.
absl::StatusOr<absl::string_view> CheckedText(absl::string_view text, size_t max_bytes,
                                              std::string* repaired);

// Returns the length in bytes of the character that begins with `lead`. Requires valid UTF-8.
inline size_t CharBytes(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  if (byte < 0x80) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

// Returns the first code point of `text`, which must be valid, non-empty UTF-8.
inline uint32_t FrontCodePoint(absl::string_view text) {
  const size_t length = std::min(CharBytes(text.front()), text.size());
  const auto lead = static_cast<uint8_t>(text.front());
  if (length == 1) return lead;
  uint32_t code_point = lead & (0xFFU >> (length + 1));
  for (size_t i = 1; i < length; ++i) code_point = code_point << 6 | (static_cast<uint8_t>(text[i]) & 0x3FU);
  return code_point;
}
void AppendUtf8(uint32_t code_point, std::string* out);

// Whether the code point has the Unicode property White_Space.
bool IsWhiteSpace(uint32_t code_point);
// Return the number of bytes of white space at the start or end of `text`, which must be valid UTF-8.
size_t LeadingSpaceBytes(absl::string_view text);
size_t TrailingSpaceBytes(absl::string_view text);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// Returns `text`, which must be valid UTF-8, in the given normalization form.
absl::StatusOr<std::string> Normalized(absl::string_view text, NormalForm form);

}  // namespace trainctl::tokenizer
