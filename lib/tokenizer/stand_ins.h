// Replaces characters by stand-ins before PCRE2 matches a text. A pattern distinguishes only a few kinds of
// characters; \p{L}+, for example, only separates letters from everything else. All characters that a pattern
// treats alike can therefore be replaced by one of them, their stand-in. The pattern's character classes then
// list a few stand-ins instead of hundreds of ranges, and PCRE2 does not need its Unicode tables, which
// change from version to version. ASCII stays unchanged, and a stand-in has as many bytes as the character it
// replaces. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tokenizer/code_points.h"

namespace trainctl::tokenizer {

class StandIns {
 public:
  // One set, reduced to ASCII characters and stand-ins.
  struct Members {
    CodePointSet in;   // ASCII characters and stand-ins in the set
    CodePointSet out;  // ASCII characters and stand-ins not in the set
  };

  // Characters that belong to the same sets share a stand-in, except that characters in `fixed` are not
  // replaced.
  StandIns(const std::vector<CodePointSet>& sets, const CodePointSet& fixed);

  // The reduced sets, in the order of `sets`.
  const std::vector<Members>& members() const { return members_; }
  // Whether texts need no replacement, because no set distinguishes between non-ASCII characters.
  bool is_identity() const { return pages_.empty(); }

  // Returns `text`, which must be UTF-8, with its characters replaced. Returns `text` itself if it is ASCII;
  // otherwise the result is stored in `buffer`.
  absl::string_view Replace(absl::string_view text, std::string* buffer) const;

 private:
  static constexpr uint32_t kPageBits = 8;
  static constexpr uint32_t kPageChars = 1 << kPageBits;
  using Utf8 = std::array<char, 4>;
  using Page = std::array<Utf8, kPageChars>;

  void FillPages(const std::vector<uint32_t>& begins, const std::vector<uint32_t>& stand_ins);

  std::vector<Members> members_;
  // Indexed by the upper bits of a code point. Covers every value that four bytes can encode, so no text can
  // cause an out-of-bounds access.
  std::vector<uint16_t> page_of_;
  std::vector<Page> pages_;
};

}  // namespace trainctl::tokenizer
