// Trains a byte-level BPE tokenizer on text, by repeatedly merging the most frequent pair of adjacent tokens
// into a new token. Text is split into words as in GPT-2, and no merge crosses a word boundary.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tokenizer/model.h"
#include "tokenizer/pattern.h"

namespace trainctl::tokenizer {

// Counts words. Not thread-safe: use one counter per thread, and combine them with AddAll at the end.
class WordCounter {
 public:
  static absl::StatusOr<WordCounter> Create();
  // Counts the words of a text. A word never continues from one text to the next. Invalid UTF-8 is read as
  // U+FFFD.
  absl::Status AddText(absl::string_view text);
  void AddAll(const WordCounter& other);

  const absl::flat_hash_map<std::string, int64_t>& counts() const { return counts_; }

 private:
  explicit WordCounter(Pattern pattern) : pattern_(std::move(pattern)) {}
  Pattern pattern_;
  absl::flat_hash_map<std::string, int64_t> counts_;
};

struct TrainOptions {
  // Total number of tokens: the special tokens, 256 bytes, and one per merge.
  int64_t vocab = 0;
  // Minimum frequency of a pair to be merged.
  int64_t min_frequency = 2;
  // Special tokens, which get the first ids.
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
};

struct TrainedBpe {
  std::vector<std::string> special_tokens;
  std::vector<std::string> tokens;  // tokens by id, special ones included, spelled in GPT-2's byte alphabet
  std::vector<std::pair<int32_t, int32_t>> merges;  // merged pairs of ids, in the order learned
};

// Returns UsageError if the vocabulary is too small or larger than kMaxVocab, if the frequency is below 1, or
// if a special token is empty, duplicate, or spelled like a byte.
absl::Status CheckTrainOptions(const TrainOptions& options);

// Trains a tokenizer on the counted words. If two pairs are equally frequent, merges the one with the smaller
// ids first, so equal counts always yield the same tokenizer. Returns fewer tokens than requested if it runs
// out of frequent pairs. Returns UsageError like CheckTrainOptions.
absl::StatusOr<TrainedBpe> TrainBpe(const WordCounter& words, const TrainOptions& options);

// Formats the tokenizer as a tokenizer.json.
std::string TokenizerJson(const TrainedBpe& trained);

}  // namespace trainctl::tokenizer
