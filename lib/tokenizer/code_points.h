// Sets of code points, and character properties as of the Unicode versions that the reference implementation
// (`tokenizers` 0.23.3) uses. The properties come from built-in tables, so tokenization does not depend on
// the version of any library. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainctl::tokenizer {

inline constexpr uint32_t kMaxCodePoint = 0x10FFFF;

struct CodePointRange {
  uint32_t first;
  uint32_t last;  // inclusive
  bool operator==(const CodePointRange&) const = default;
};

// A set of code points. It never contains surrogates, because valid UTF-8 does not.
class CodePointSet {
 public:
  void Add(uint32_t first, uint32_t last);
  void Add(const CodePointSet& other);
  // Returns the set of all code points that are not in this set.
  CodePointSet Complement() const;

  bool Contains(uint32_t code_point) const;
  // The set as sorted ranges that neither overlap nor touch.
  const std::vector<CodePointRange>& ranges() const { return ranges_; }
  bool operator==(const CodePointSet&) const = default;

 private:
  std::vector<CodePointRange> ranges_;
};

// Returns the characters in a general category ("L", "Lu") or script ("Han", "Hani") of Unicode 16.0, or
// nullopt if `name` is neither. Ignores case and '_' in `name`.
std::optional<CodePointSet> CharactersWith(absl::string_view name);

// Returns the characters that form words: Alphabetic, M, Nd and Pc of Unicode 16.0.
CodePointSet WordCharacters();
// Returns the White_Space characters, which are the same in all versions of Unicode.
CodePointSet WhiteSpace();
// Returns the punctuation (categories P*) of Unicode 8.0.
CodePointSet PunctuationOfUnicode8();

// Whether the code point is unassigned in Unicode 9.0.
bool IsLaterThanUnicode9(uint32_t code_point);

}  // namespace trainctl::tokenizer
