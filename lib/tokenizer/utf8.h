// UTF-8 and the normal forms of Unicode. Thread safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::tokenizer {

bool IsUtf8(absl::string_view text);

// `text` with U+FFFD for each longest piece that is not UTF-8 (the Unicode standard's table 3-8).
std::string RepairUtf8(absl::string_view text);

// `text` itself, or, where it is not UTF-8, what RepairUtf8 makes of it, kept in `repaired`. BadDataError
// where that is longer than `max_bytes`.
absl::StatusOr<absl::string_view> CheckedText(absl::string_view text, size_t max_bytes,
                                              std::string* repaired);

// Bytes of the character that begins with `lead`, in valid UTF-8.
inline size_t CharBytes(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  if (byte < 0x80) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

// The code point at the front of valid, non-empty UTF-8.
inline uint32_t FrontCodePoint(absl::string_view text) {
  const size_t length = std::min(CharBytes(text.front()), text.size());
  const auto lead = static_cast<uint8_t>(text.front());
  if (length == 1) return lead;
  uint32_t code_point = lead & (0xFFU >> (length + 1));
  for (size_t i = 1; i < length; ++i) code_point = code_point << 6 | (static_cast<uint8_t>(text[i]) & 0x3FU);
  return code_point;
}
void AppendUtf8(uint32_t code_point, std::string* out);

// White_Space of the Unicode Character Database.
bool IsWhiteSpace(uint32_t code_point);
// Bytes of white space at the beginning and at the end of valid UTF-8.
size_t LeadingSpaceBytes(absl::string_view text);
size_t TrailingSpaceBytes(absl::string_view text);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// Of valid UTF-8.
absl::StatusOr<std::string> Normalized(absl::string_view text, NormalForm form);

}  // namespace trainctl::tokenizer
