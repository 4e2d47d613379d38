#include "tokenizer/utf8.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

#include "base/status.h"
#include "tokenizer/code_points.h"

namespace trainctl::tokenizer {
namespace {

// Length of the well-formed character at `position`, or minus the length of the ill-formed piece there.
int CharAt(absl::string_view text, size_t position) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[position + i]); };
  const size_t left = text.size() - position;
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return -1;
  const size_t length = CharBytes(text[position]);
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (size_t i = 1; i < length; ++i) {
    if (i >= left || byte(i) < low || byte(i) > high) return -static_cast<int>(i);
    low = 0x80;
    high = 0xBF;
  }
  return static_cast<int>(length);
}

// Below U+0300 all text is in NFC, and ASCII is in every form.
bool IsNormalizedSurely(absl::string_view text, NormalForm form) {
  const uint8_t limit = form == NormalForm::kNfc ? 0xCC : 0x80;
  return std::all_of(text.begin(), text.end(), [&](char c) { return static_cast<uint8_t>(c) < limit; });
}

// Normalizes the characters of Unicode 9.0, whose forms are the same in all later versions.
absl::Status AppendNormalized(absl::string_view text, NormalForm form, std::string* out) {
  if (IsNormalizedSurely(text, form)) {
    absl::StrAppend(out, text);
    return absl::OkStatus();
  }
  int options = UTF8PROC_STABLE;
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  options |= composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                               static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                               static_cast<utf8proc_option_t>(options));
  if (length < 0) {
    return BadDataError(
        absl::StrCat("a text of ", text.size(), " bytes cannot be normalized: ", utf8proc_errmsg(length)));
  }
  out->append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(length));
  std::free(mapped);
  return absl::OkStatus();
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    if (static_cast<uint8_t>(text[position]) < 0x80) {
      ++position;
      continue;
    }
    const int length = CharAt(text, position);
    if (length < 0) return false;
    position += static_cast<size_t>(length);
  }
  return true;
}

std::string RepairUtf8(absl::string_view text) {
  std::string repaired;
  repaired.reserve(text.size() + 16);
  size_t position = 0;
  while (position < text.size()) {
    const int length = CharAt(text, position);
    if (length < 0) {
      repaired.append("\xEF\xBF\xBD");
    } else {
      repaired.append(text.data() + position, static_cast<size_t>(length));
    }
    position += static_cast<size_t>(std::abs(length));
  }
  return repaired;
}

void AppendUtf8(uint32_t code_point, std::string* out) {
  uint8_t bytes[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  out->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

bool IsWhiteSpace(uint32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

absl::StatusOr<absl::string_view> CheckedText(absl::string_view text, size_t max_bytes,
                                              std::string* repaired) {
  if (!IsUtf8(text)) {
    *repaired = RepairUtf8(text);
    text = *repaired;
  }
  if (text.size() <= max_bytes) return text;
  return BadDataError(absl::StrCat("a text of ", text.size(),
                                   " bytes is too long to tokenize as one document (the limit is ", max_bytes,
                                   "); split it into several documents"));
}

size_t LeadingSpaceBytes(absl::string_view text) {
  size_t bytes = 0;
  while (bytes < text.size() && IsWhiteSpace(FrontCodePoint(text.substr(bytes))))
    bytes += CharBytes(text[bytes]);
  return bytes;
}

size_t TrailingSpaceBytes(absl::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0U) == 0x80) --begin;
    if (!IsWhiteSpace(FrontCodePoint(text.substr(begin, end - begin)))) break;
    end = begin;
  }
  return text.size() - end;
}

absl::StatusOr<std::string> Normalized(absl::string_view text, NormalForm form) {
  if (IsNormalizedSurely(text, form)) return std::string(text);
  // To the reference, what is not in Unicode 9.0 neither decomposes, composes nor moves. So what lies between
  // such characters is normalized apart.
  std::string normalized;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = CharBytes(text[at]);
    if (bytes > 1 && IsLaterThanUnicode9(FrontCodePoint(text.substr(at)))) {
      TRAINCTL_RETURN_IF_ERROR(AppendNormalized(text.substr(begin, at - begin), form, &normalized));
      absl::StrAppend(&normalized, text.substr(at, bytes));
      begin = at + bytes;
    }
    at += bytes;
  }
  TRAINCTL_RETURN_IF_ERROR(AppendNormalized(text.substr(begin), form, &normalized));
  return normalized;
}

}  // namespace trainctl::tokenizer
