// Splits a text into words: the "pre_tokenizer" of a tokenizer.json. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/model.h"

namespace trainctl::tokenizer {

// The pattern with which GPT-2 splits words. It is built into ByteLevel.
inline constexpr absl::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// A text and its words, which are non-empty ranges of `text`.
struct Pieces {
  std::string text;
  std::vector<Span> words;
  bool is_first = true;  // whether the text is at the beginning of the input
};

class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  virtual absl::Status Apply(Pieces& pieces, Scratch& scratch) const = 0;
};

struct PreTokenizer {
  std::vector<std::unique_ptr<PreTokenizerStep>> steps;  // steps in order
  // Applied after the steps; each match and each part between matches becomes a word. It is kept separate so
  // its words do not have to be collected in a list.
  std::unique_ptr<Pattern> last_split;
  // Whether a step depends on the beginning of the input.
  bool asks_for_beginning = false;
  // Whether that step follows one that may split the text.
  bool asks_behind_split = false;
  // Whether the model's input is bytes in GPT-2's alphabet.
  bool byte_level = false;
};

// Parses a pre-tokenizer of type Sequence, Split, ByteLevel (only as the last step), Metaspace, Digits or
// Punctuation, or null. Returns a BadDataError that names any other type.
absl::StatusOr<PreTokenizer> ParsePreTokenizer(const JsonPart& part);

}  // namespace trainctl::tokenizer
