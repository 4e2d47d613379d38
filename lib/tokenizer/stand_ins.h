// A pattern tells few characters apart: \p{L}+ distinguishes letters from everything else. So all characters
// that a pattern treats alike are replaced by one of them, their stand-in, before PCRE2 sees a text. Its
// classes then list a few stand-ins instead of hundreds of ranges, and PCRE2 needs no tables of Unicode,
// which change with its version. ASCII stays as it is, and a stand-in has as many bytes as what it stands
// for. Thread safe.
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
    CodePointSet in;   // its ASCII characters and stand-ins
    CodePointSet out;  // all other ASCII characters and stand-ins
  };

  // Characters that are in the same of these sets share a stand-in, except those in `fixed`, which keep
  // themselves.
  StandIns(const std::vector<CodePointSet>& sets, const CodePointSet& fixed);

  // The reduced sets, in the order of the given ones.
  const std::vector<Members>& members() const { return members_; }
  // Whether a text is as good as its replacement: no set distinguishes characters beyond ASCII.
  bool is_identity() const { return pages_.empty(); }

  // `text`, which must be UTF-8, with stand-ins. It is `text` itself if that is ASCII, otherwise a part of
  // `buffer`.
  absl::string_view Replace(absl::string_view text, std::string* buffer) const;

 private:
  static constexpr uint32_t kPageBits = 8;
  static constexpr uint32_t kPageChars = 1 << kPageBits;
  using Utf8 = std::array<char, 4>;
  using Page = std::array<Utf8, kPageChars>;

  void FillPages(const std::vector<uint32_t>& begins, const std::vector<uint32_t>& stand_ins);

  std::vector<Members> members_;
  // Indexed by the upper bits of a code point; covers all that four bytes can encode, so no text reads past
  // it.
  std::vector<uint16_t> page_of_;
  std::vector<Page> pages_;
};

}  // namespace trainctl::tokenizer
