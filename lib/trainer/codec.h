// Text to tokens and back as a run's data are read, and where a text ends. Thread safe.
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
  // The recipe's tokenizer, or the run's copy where its file is gone, with the ids that the run keeps of its
  // model.
  static absl::StatusOr<Codec> Open(const InferenceDeps& deps);

  // At least one token, as there is nothing to continue without.
  absl::StatusOr<std::vector<int32_t>> Encode(const std::string& prompt) const;
  // Valid UTF-8, without special tokens.
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids) const;

  // The tokenizer's end of a document, or one of the model's ends of a text. Bytes end with every other
  // token.
  bool Ends(int32_t token) const;
  bool is_bytes() const { return tokenizer_ == nullptr; }
  // The token that ends a document, as the tokenizer spells it. Empty if there is none.
  std::string end_of_document() const;
  // The special tokens for an exported folder: the end of a document that was trained, then the ids of the
  // folder that the model came from.
  model::SpecialTokens special_tokens() const { return special_; }
  // -1: none.
  int64_t end_of_document_id() const { return end_; }

 private:
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;  // null: bytes
  model::SpecialTokens special_;
  int64_t end_ = -1;
  std::set<int64_t> ends_;
};

}  // namespace trainctl::trainer
