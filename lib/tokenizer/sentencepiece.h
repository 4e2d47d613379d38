// Tokenizers in sentencepiece's .model format: BPE by piece scores, and Unigram.
//
// The ids equal those of `encode` in the PyPI package, which adds no prefix or suffix. Control symbols decode
// to an empty string, even if special tokens are not skipped.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/tokenizer.h"

namespace trainctl::tokenizer {

// Parses a .model. A BadDataError begins with "<what>: ".
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseSentencePiece(absl::string_view bytes,
                                                              absl::string_view what);

}  // namespace trainctl::tokenizer
