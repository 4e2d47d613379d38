// sentencepiece's .model: BPE by the scores of pieces, and Unigram.
//
// Ids are those of `encode` of the PyPI package, which puts nothing before or behind a text; decoding gives
// control symbols no text, whether special tokens are asked for or not.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/tokenizer.h"

namespace trainctl::tokenizer {

// BadDataError: "<what>: ...".
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseSentencePiece(absl::string_view bytes,
                                                              absl::string_view what);

}  // namespace trainctl::tokenizer
