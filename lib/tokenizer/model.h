// Converts a word (a piece from the pre-tokenizer) to token ids. Thread-safe, except that each thread needs
// its own Scratch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tokenizer/pattern.h"
#include "tokenizer/word_cache.h"

namespace trainctl::tokenizer {

// All ids are less than this.
inline constexpr int64_t kMaxVocab = int64_t{1} << 22;

// One thread's scratch space. It grows to fit the longest word.
struct Scratch {
  struct Symbol {
    int32_t id;
    int32_t previous;
    int32_t next;
    bool is_gone;  // whether it was merged into the previous symbol
  };
  struct Candidate {
    int32_t rank;
    int32_t position;
  };
  MatchScratch match;
  std::vector<Match> matches;
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::vector<int32_t> ranks;
  WordCache cache;
};

class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of a word, which must be non-empty UTF-8.
  virtual void EncodeWord(absl::string_view word, Scratch& scratch, std::vector<int32_t>* ids) const = 0;
};

}  // namespace trainctl::tokenizer
