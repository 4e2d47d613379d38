#include "tokenizer/code_points.h"

#include <algorithm>
#include <bitset>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"

namespace trainctl::tokenizer {
namespace {

struct ScriptNames {
  absl::string_view full;
  absl::string_view abbreviated;
};

#include "tokenizer/unicode_data.inc"

constexpr uint32_t kFirstSurrogate = 0xD800;
constexpr uint32_t kLastSurrogate = 0xDFFF;
constexpr int kCategoryBits = 5;
constexpr int kScriptBits = 8;

std::string Simplified(absl::string_view name) {
  return absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"_", ""}});
}

// `has` decides by the value of a run, which is its lowest `value_bits`.
template <size_t kCount, typename Has>
CodePointSet FromRuns(const uint32_t (&runs)[kCount], int value_bits, const Has& has) {
  CodePointSet set;
  for (size_t i = 0; i < kCount; ++i) {
    if (!has(runs[i] & ((1U << value_bits) - 1))) continue;
    const uint32_t end = i + 1 < kCount ? runs[i + 1] >> value_bits : kMaxCodePoint + 1;
    set.Add(runs[i] >> value_bits, end - 1);
  }
  return set;
}

template <size_t kCount>
CodePointSet FromRanges(const CodePointRange (&ranges)[kCount]) {
  CodePointSet set;
  for (const CodePointRange& range : ranges) set.Add(range.first, range.last);
  return set;
}

}  // namespace

void CodePointSet::Add(uint32_t first, uint32_t last) {
  if (first < kFirstSurrogate && last >= kFirstSurrogate) {
    Add(first, kFirstSurrogate - 1);
    first = kFirstSurrogate;
  }
  if (first >= kFirstSurrogate && first <= kLastSurrogate) first = kLastSurrogate + 1;
  if (first > last) return;
  // The ranges that overlap or touch the new one become a part of it.
  const auto begin = std::lower_bound(ranges_.begin(), ranges_.end(), first,
                                      [](const CodePointRange& r, uint32_t c) { return r.last + 1 < c; });
  auto end = begin;
  while (end != ranges_.end() && end->first <= last + 1) ++end;
  if (begin == end) {
    ranges_.insert(begin, {first, last});
    return;
  }
  begin->first = std::min(begin->first, first);
  begin->last = std::max(std::prev(end)->last, last);
  ranges_.erase(begin + 1, end);
}

void CodePointSet::Add(const CodePointSet& other) {
  for (const CodePointRange& range : other.ranges_) Add(range.first, range.last);
}

CodePointSet CodePointSet::Complement() const {
  CodePointSet others;
  uint32_t next = 0;
  for (const CodePointRange& range : ranges_) {
    if (range.first > next) others.Add(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kMaxCodePoint) others.Add(next, kMaxCodePoint);
  return others;
}

bool CodePointSet::Contains(uint32_t code_point) const {
  const auto range = std::lower_bound(ranges_.begin(), ranges_.end(), code_point,
                                      [](const CodePointRange& r, uint32_t c) { return r.last < c; });
  return range != ranges_.end() && range->first <= code_point;
}

std::optional<CodePointSet> CharactersWith(absl::string_view name) {
  const std::string wanted = Simplified(name);
  if (wanted.empty()) return std::nullopt;
  if (wanted.size() <= 2) {
    const auto is_wanted = [&](uint32_t category) {
      return absl::AsciiStrToLower(kCategories[category].substr(0, wanted.size())) == wanted;
    };
    const bool is_known = std::any_of(std::begin(kCategories), std::end(kCategories), [&](auto& category) {
      return is_wanted(static_cast<uint32_t>(&category - kCategories));
    });
    if (!is_known) return std::nullopt;
    return FromRuns(kCategoryRuns, kCategoryBits, is_wanted);
  }
  const auto script = std::find_if(std::begin(kScripts), std::end(kScripts), [&](const ScriptNames& names) {
    return Simplified(names.full) == wanted || Simplified(names.abbreviated) == wanted;
  });
  if (script == std::end(kScripts)) return std::nullopt;
  const auto number = static_cast<uint32_t>(script - kScripts);
  return FromRuns(kScriptRuns, kScriptBits, [&](uint32_t other) { return other == number; });
}

CodePointSet WordCharacters() {
  CodePointSet set = FromRanges(kOtherAlphabetic);
  for (const absl::string_view category : {"L", "M", "Nd", "Nl", "Pc"}) set.Add(*CharactersWith(category));
  return set;
}

CodePointSet WhiteSpace() {
  CodePointSet set = *CharactersWith("Z");
  set.Add('\t', '\r');
  set.Add(0x85, 0x85);
  return set;
}

CodePointSet PunctuationOfUnicode8() { return FromRanges(kPunctuation8); }

bool IsLaterThanUnicode9(uint32_t code_point) {
  using Bits = std::bitset<kMaxCodePoint + 1>;
  static const Bits* const later = [] {
    auto bits = std::make_unique<Bits>();
    for (const CodePointRange& range : kLaterThan9) {
      for (uint32_t c = range.first; c <= range.last; ++c) bits->set(c);
    }
    return bits.release();
  }();
  return code_point <= kMaxCodePoint && later->test(code_point);
}

}  // namespace trainctl::tokenizer
