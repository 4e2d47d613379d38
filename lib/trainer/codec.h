// Converts text to tokens in the same way as the run's training data, and converts tokens back to text. Also
// says which tokens end a text. Thread-safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(const Codec codec, Codec::Open(deps));
//   TRAINCTL_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, codec.Encode(prompt));
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/special_tokens.h"
#include "tokenizer/tokenizer.h"
#include "trainer/run_worker.h"

namespace trainctl::trainer {

class Codec {
 public:
  // Opens the recipe's tokenizer, or the run's copy of it if the original file no longer exists. Also reads
  // the special token IDs from the run's copies of the model's config files. Returns an error if one of these
  // files cannot be read or parsed.
  static absl::StatusOr<Codec> Open(const InferenceDeps& deps);

  // Returns the tokens of `prompt`, preceded by those with which the tokenizer begins a text. Encodes a
  // newline if there would be no tokens, because a model cannot continue an empty text. Returns UsageError if
  // there are still none, or if a token is not in the model's vocabulary.
  absl::StatusOr<std::vector<int32_t>> Encode(const std::string& prompt) const;
  // Returns the text of the tokens as valid UTF-8. Omits special tokens and IDs that the tokenizer does not
  // have.
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids) const;

  // Whether the token ends a text: it is the tokenizer's end of a document, or one of the model's end-of-text
  // tokens. If tokens are bytes, every token that is not a byte ends a text.
  bool Ends(int32_t token) const;
  // Whether tokens are bytes, so that there is no tokenizer.
  bool is_bytes() const { return tokenizer_ == nullptr; }
  // Returns the token that ends a document, as the tokenizer spells it. Empty if there is none or if tokens
  // are bytes.
  std::string end_of_document() const;
  // Returns the special tokens for an exported folder. Its end-of-text tokens are the end of a document in
  // the training data, then those of the folder that the model came from.
  model::SpecialTokens special_tokens() const { return special_; }
  // Returns -1 if there is none.
  int64_t end_of_document_id() const { return end_; }
  // Returns one sentence for each setting in the tokenizer's configuration that transformers applies but this
  // class does not.
  const std::vector<std::string>& differences() const { return differences_; }

 private:
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;  // null if tokens are bytes
  model::SpecialTokens special_;
  std::vector<std::string> differences_;
  int64_t vocab_ = 0;       // the model's vocabulary size
  int64_t end_ = -1;        // ends a document; -1 for none
  std::set<int64_t> ends_;  // all tokens that end a text
};

}  // namespace trainctl::trainer
