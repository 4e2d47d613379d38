#include "tokenizer/chars_map.h"

#include <cstring>

#include "base/status.h"
#include "tokenizer/utf8.h"

namespace trainctl::tokenizer {
namespace {

bool HasLeaf(uint32_t unit) { return ((unit >> 8) & 1U) != 0; }
uint32_t ValueOf(uint32_t unit) { return unit & 0x7FFFFFFFU; }
uint32_t LabelOf(uint32_t unit) { return unit & 0x800000FFU; }
uint32_t OffsetOf(uint32_t unit) { return (unit >> 10) << ((unit & (1U << 9)) >> 6); }

}  // namespace

absl::StatusOr<CharsMap> CharsMap::Parse(absl::string_view bytes, absl::string_view what) {
  CharsMap map;
  if (bytes.empty()) return map;
  uint32_t trie_bytes = 0;
  if (bytes.size() >= sizeof(trie_bytes)) std::memcpy(&trie_bytes, bytes.data(), sizeof(trie_bytes));
  if (bytes.size() <= sizeof(trie_bytes) || trie_bytes % 4 != 0 || trie_bytes >= bytes.size() - 4 ||
      trie_bytes == 0) {
    return BadDataError(absl::StrCat(what, ": normalizer_spec.precompiled_charsmap is damaged"));
  }
  map.units_.resize(trie_bytes / 4);
  std::memcpy(map.units_.data(), bytes.data() + 4, trie_bytes);
  map.texts_ = std::string(bytes.substr(4 + trie_bytes));
  if (map.texts_.back() != '\0') map.texts_.push_back('\0');
  return map;
}

size_t CharsMap::Longest(absl::string_view text, absl::string_view* replacement) const {
  if (units_.empty()) return 0;
  size_t longest = 0;
  uint32_t node = OffsetOf(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (node >= units_.size() || LabelOf(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= OffsetOf(unit);
    if (node >= units_.size()) break;
    if (!HasLeaf(unit)) continue;
    const uint32_t value = ValueOf(units_[node]);
    if (value >= texts_.size()) break;
    const absl::string_view found(texts_.data() + value);
    // What a damaged table may hold must not leave UTF-8.
    if (!IsUtf8(found) || !IsUtf8(text.substr(0, i + 1))) continue;
    longest = i + 1;
    *replacement = found;
  }
  return longest;
}

}  // namespace trainctl::tokenizer
