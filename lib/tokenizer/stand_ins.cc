#include "tokenizer/stand_ins.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>

#include "tokenizer/utf8.h"

namespace trainctl::tokenizer {
namespace {

constexpr uint32_t kFirstBeyondAscii = 0x80;
constexpr uint32_t kEnd = kMaxCodePoint + 1;
// The code points at which the number of UTF-8 bytes changes, and the limits of the surrogates.
constexpr uint32_t kBorders[] = {kFirstBeyondAscii, 0x800, 0xD800, 0xE000, 0x10000, kEnd};

bool DistinguishesBeyondAscii(const CodePointSet& set) {
  const auto is_beyond = [](const CodePointSet& s) {
    return !s.ranges().empty() && s.ranges().back().last >= kFirstBeyondAscii;
  };
  return is_beyond(set) && is_beyond(set.Complement());
}

bool IsSurrogate(uint32_t c) { return c >= 0xD800 && c < 0xE000; }

// First code points of stretches that no set cuts; the last one is kEnd.
std::vector<uint32_t> Stretches(const std::vector<CodePointSet>& sets, const CodePointSet& fixed) {
  std::vector<uint32_t> begins(std::begin(kBorders), std::end(kBorders));
  for (const CodePointSet& set : sets) {
    for (const CodePointRange& range : set.ranges()) {
      begins.push_back(range.first);
      begins.push_back(range.last + 1);
    }
  }
  for (const CodePointRange& range : fixed.ranges()) {
    for (uint32_t c = range.first; c <= range.last + 1; ++c) begins.push_back(c);
  }
  std::sort(begins.begin(), begins.end());
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  begins.erase(begins.begin(), std::lower_bound(begins.begin(), begins.end(), kFirstBeyondAscii));
  return begins;
}

// For each stretch, the first code point that is in the same sets and has as many bytes.
std::vector<uint32_t> StandInOfEach(const std::vector<uint32_t>& begins,
                                    const std::vector<CodePointSet>& sets, const CodePointSet& fixed) {
  std::vector<uint32_t> group(begins.size() - 1);
  uint32_t num_groups = 4;
  for (size_t i = 0; i < group.size(); ++i) {
    const uint32_t c = begins[i];
    group[i] = fixed.Contains(c) ? num_groups++ : c < 0x800 ? 0U : c < 0x10000 ? 1U : 2U;
  }
  for (const CodePointSet& set : sets) {
    // Splits each group into members and non-members of the set.
    std::unordered_map<uint32_t, uint32_t> within;
    auto range = set.ranges().begin();
    for (size_t i = 0; i < group.size(); ++i) {
      while (range != set.ranges().end() && range->last < begins[i]) ++range;
      if (range == set.ranges().end()) break;
      if (range->first > begins[i]) continue;
      const auto [place, is_new] = within.try_emplace(group[i], num_groups);
      if (is_new) ++num_groups;
      group[i] = place->second;
    }
  }
  std::unordered_map<uint32_t, uint32_t> first_of_group;
  std::vector<uint32_t> stand_ins(group.size());
  for (size_t i = 0; i < group.size(); ++i) {
    if (IsSurrogate(begins[i])) continue;
    stand_ins[i] = first_of_group.try_emplace(group[i], begins[i]).first->second;
  }
  return stand_ins;
}

// `text` up to its first character beyond ASCII.
size_t AsciiBytes(absl::string_view text, size_t from) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  size_t at = from;
  for (uint64_t eight = 0; at + sizeof(eight) <= text.size(); at += sizeof(eight)) {
    std::memcpy(&eight, text.data() + at, sizeof(eight));
    if ((eight & kHighBits) != 0) break;
  }
  while (at < text.size() && static_cast<uint8_t>(text[at]) < kFirstBeyondAscii) ++at;
  return at - from;
}

}  // namespace

StandIns::StandIns(const std::vector<CodePointSet>& sets, const CodePointSet& fixed) {
  if (std::none_of(sets.begin(), sets.end(), DistinguishesBeyondAscii)) {
    for (const CodePointSet& set : sets) members_.push_back({set, set.Complement()});
    return;
  }
  const std::vector<uint32_t> begins = Stretches(sets, fixed);
  const std::vector<uint32_t> stand_ins = StandInOfEach(begins, sets, fixed);
  std::vector<uint32_t> different(stand_ins);
  std::sort(different.begin(), different.end());
  different.erase(std::unique(different.begin(), different.end()), different.end());
  for (const CodePointSet& set : sets) {
    Members members;
    for (uint32_t c = 0; c < kFirstBeyondAscii; ++c) (set.Contains(c) ? members.in : members.out).Add(c, c);
    for (const uint32_t c : different) {
      if (c >= kFirstBeyondAscii) (set.Contains(c) ? members.in : members.out).Add(c, c);
    }
    members_.push_back(std::move(members));
  }
  FillPages(begins, stand_ins);
}

void StandIns::FillPages(const std::vector<uint32_t>& begins, const std::vector<uint32_t>& stand_ins) {
  const auto encoded = [](uint32_t code_point) {
    Utf8 bytes{};
    std::string text;
    AppendUtf8(code_point, &text);
    std::copy(text.begin(), text.end(), bytes.begin());
    return bytes;
  };
  page_of_.resize(size_t{1} << (21 - kPageBits));
  pages_.emplace_back();                         // for what is no character
  std::map<uint32_t, uint16_t> uniform_page_of;  // by stand-in
  size_t stretch = 0;
  for (uint32_t first = 0; first < kEnd; first += kPageChars) {
    while (stretch + 2 < begins.size() && begins[stretch + 1] <= first) ++stretch;
    const auto new_page = static_cast<uint16_t>(pages_.size());
    if (begins[stretch] <= first && begins[stretch + 1] >= first + kPageChars) {
      const auto [place, is_new] = uniform_page_of.try_emplace(stand_ins[stretch], new_page);
      if (is_new) {
        pages_.emplace_back();
        if (!IsSurrogate(first)) pages_.back().fill(encoded(stand_ins[stretch]));
      }
      page_of_[first >> kPageBits] = place->second;
      continue;
    }
    pages_.emplace_back();
    page_of_[first >> kPageBits] = new_page;
    for (uint32_t c = std::max(first, kFirstBeyondAscii); c < first + kPageChars; ++stretch) {
      const uint32_t end = std::min(begins[stretch + 1], first + kPageChars);
      std::fill(pages_.back().begin() + (c - first), pages_.back().begin() + (end - first),
                encoded(stand_ins[stretch]));
      c = end;
      if (begins[stretch + 1] > end) break;
    }
  }
}

absl::string_view StandIns::Replace(absl::string_view text, std::string* buffer) const {
  size_t at = AsciiBytes(text, 0);
  if (at == text.size()) return text;
  // Four bytes are written for each character, whatever its length.
  if (buffer->size() < text.size() + sizeof(Utf8)) buffer->resize(text.size() + sizeof(Utf8));
  char* const out = buffer->data();
  std::memcpy(out, text.data(), at);
  while (at < text.size()) {
    const size_t bytes = CharBytes(text[at]);
    if (bytes == 1) {
      const size_t ascii = AsciiBytes(text, at);
      std::memcpy(out + at, text.data() + at, ascii);
      at += ascii;
      continue;
    }
    const uint32_t code_point = FrontCodePoint(text.substr(at));
    std::memcpy(out + at, &pages_[page_of_[code_point >> kPageBits]][code_point & (kPageChars - 1)],
                sizeof(Utf8));
    at += bytes;
  }
  return {out, text.size()};
}

}  // namespace trainctl::tokenizer
