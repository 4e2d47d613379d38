// Sets of code points, and the properties of characters in the versions of Unicode that the reference
// implementation (`tokenizers` 0.23.3) uses. They come from our own tables, so that a text has the same
// tokens with any version of any library. Thread safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainctl::tokenizer {

inline constexpr uint32_t kMaxCodePoint = 0x10FFFF;

struct CodePointRange {
  uint32_t first;
  uint32_t last;  // included
  bool operator==(const CodePointRange&) const = default;
};

// Surrogates are in no set, as no text has them.
class CodePointSet {
 public:
  void Add(uint32_t first, uint32_t last);
  void Add(const CodePointSet& other);
  // All characters that are not in the set.
  CodePointSet Complement() const;

  bool Contains(uint32_t code_point) const;
  // In ascending order; they neither overlap nor touch each other.
  const std::vector<CodePointRange>& ranges() const { return ranges_; }
  bool operator==(const CodePointSet&) const = default;

 private:
  std::vector<CodePointRange> ranges_;
};

// The characters of a general category ("L", "Lu") or script ("Han", "Hani") of Unicode 16.0. Case and '_' in
// `name` do not matter. Empty if there is no such property.
std::optional<CodePointSet> CharactersWith(absl::string_view name);

// Alphabetic, M, Nd and Pc of Unicode 16.0: the characters of words.
CodePointSet WordCharacters();
// White_Space, equal in all versions.
CodePointSet WhiteSpace();
// Categories P* of Unicode 8.0.
CodePointSet PunctuationOfUnicode8();

// Whether Unicode 9.0 assigns no character to the code point.
bool IsLaterThanUnicode9(uint32_t code_point);

}  // namespace trainctl::tokenizer
