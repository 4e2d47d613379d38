// Tokens that are looked for in the text itself, before it is cut into words: the "added_tokens" of a
// tokenizer.json. Thread safe.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/pattern.h"

namespace trainctl::tokenizer {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // not within a longer word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and behind it
  bool normalized = true;    // looked for behind the normalizer
  bool special = false;

  bool operator==(const AddedToken&) const = default;
};

class TokenFinder {
 public:
  // What is searched for is each token's content, which must not be empty. BadDataError: two are the same.
  static absl::StatusOr<TokenFinder> Create(const std::vector<AddedToken>& tokens, absl::string_view what);

  // A stretch of the text; id is -1 where it is not a token.
  struct Part {
    Span span;
    int32_t id = -1;
  };
  // All of `text` (UTF-8) in parts, none of them empty except tokens; matches are the leftmost, then the
  // longest.
  absl::Status Split(absl::string_view text, MatchScratch& scratch, std::vector<Part>* parts) const;

  bool empty() const { return tokens_.empty(); }

 private:
  struct Node {
    int32_t token = -1;
    absl::flat_hash_map<uint8_t, int32_t> next;
  };

  TokenFinder() = default;
  int32_t LongestAt(absl::string_view text, size_t position) const;
  absl::StatusOr<bool> IsWithinWord(absl::string_view text, Span match, MatchScratch& scratch) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<bool, 256> begins_{};
  std::optional<Pattern> word_;
};

}  // namespace trainctl::tokenizer
