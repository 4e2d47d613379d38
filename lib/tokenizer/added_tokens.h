// Finds the tokens that are matched in the text itself before it is split into words: the "added_tokens" of a
// tokenizer.json. Thread-safe.
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
  bool single_word = false;  // does not match inside a longer word
  bool lstrip = false;       // match includes the white space before it
  bool rstrip = false;       // match includes the white space after it
  bool normalized = true;    // matched after normalization rather than before
  bool special = false;

  bool operator==(const AddedToken&) const = default;
};

class TokenFinder {
 public:
  // Creates a finder for these tokens, whose content must not be empty. Returns BadDataError if two tokens
  // have the same content. `what` names the file in errors.
  static absl::StatusOr<TokenFinder> Create(const std::vector<AddedToken>& tokens, absl::string_view what);

  // A part of the text. `id` is -1 if the part is not a token.
  struct Part {
    Span span;
    int32_t id = -1;
  };
  // Splits `text` (UTF-8) into parts that cover all of it. Only a token can be an empty part. Prefers the
  // leftmost match, then the longest.
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
