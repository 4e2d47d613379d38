// How a text is cut into words: the "pre_tokenizer" of a tokenizer.json. Thread safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/model.h"

namespace trainctl::tokenizer {

// How GPT-2 cuts words; ByteLevel has it built in.
inline constexpr absl::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Words are stretches of `text`, none of them empty.
struct Pieces {
  std::string text;
  std::vector<Span> words;
  bool is_first = true;  // the text begins where the whole input begins
};

class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  virtual absl::Status Apply(Pieces& pieces, Scratch& scratch) const = 0;
};

struct PreTokenizer {
  std::vector<std::unique_ptr<PreTokenizerStep>> steps;  // in their order
  // After them each match and each stretch between matches is a word. Apart, as no list is needed of them.
  std::unique_ptr<Pattern> last_split;
  bool asks_for_beginning = false;  // something is done at the beginning of the input alone, ...
  bool asks_behind_split = false;   // ... behind a step that may cut
  bool byte_level = false;          // the model reads bytes, in GPT-2's alphabet
};

// Sequence, Split, ByteLevel (as the last), Metaspace, Digits, Punctuation, or null; BadDataError names any
// other.
absl::StatusOr<PreTokenizer> ParsePreTokenizer(const JsonPart& part);

}  // namespace trainctl::tokenizer
