// What turns a word (a piece that the pre-tokenizer cut off) into token ids. Thread safe; a scratch is not.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tokenizer/pattern.h"
#include "tokenizer/word_cache.h"

namespace trainctl::tokenizer {

// Ids are below this.
inline constexpr int64_t kMaxVocab = int64_t{1} << 22;

// One thread's room to work in; it grows to what the longest word needs.
struct Scratch {
  struct Symbol {
    int32_t id;
    int32_t previous;
    int32_t next;
    bool is_gone;  // merged into the one before
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
  // Appends the ids of a word that is UTF-8 and not empty.
  virtual void EncodeWord(absl::string_view word, Scratch& scratch, std::vector<int32_t>* ids) const = 0;
};

}  // namespace trainctl::tokenizer
