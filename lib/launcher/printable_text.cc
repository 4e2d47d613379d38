#include "launcher/printable_text.h"

#include <cstddef>
#include <cstdint>

namespace trainctl::launcher {
namespace {

constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";

// Bytes of the valid UTF-8 sequence at the start of `bytes`; 0 when there is none.
size_t SequenceBytes(absl::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const auto continuation = [&](size_t i) { return i < bytes.size() && (byte(i) & 0xC0) == 0x80; };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continuation(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (!continuation(1) || !continuation(2)) return 0;
    if (first == 0xE0 && byte(1) < 0xA0) return 0;  // overlong
    if (first == 0xED && byte(1) > 0x9F) return 0;  // surrogate
    return 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (!continuation(1) || !continuation(2) || !continuation(3)) return 0;
    if (first == 0xF0 && byte(1) < 0x90) return 0;
    if (first == 0xF4 && byte(1) > 0x8F) return 0;
    return 4;
  }
  return 0;
}

bool IsControl(absl::string_view sequence, bool keep_newlines) {
  const uint8_t first = static_cast<uint8_t>(sequence[0]);
  if (sequence.size() == 1) {
    if (first == '\t' || (keep_newlines && first == '\n')) return false;
    return first < 0x20 || first == 0x7F;
  }
  return sequence.size() == 2 && first == 0xC2 && static_cast<uint8_t>(sequence[1]) < 0xA0;  // C1
}

}  // namespace

std::string PrintableText(absl::string_view bytes, bool keep_newlines) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t length = SequenceBytes(bytes);
    const absl::string_view sequence = bytes.substr(0, length == 0 ? 1 : length);
    const bool keep = length > 0 && !IsControl(sequence, keep_newlines);
    const absl::string_view out = keep ? sequence : kReplacement;
    text.append(out.data(), out.size());
    bytes.remove_prefix(sequence.size());
  }
  return text;
}

}  // namespace trainctl::launcher
