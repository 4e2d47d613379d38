// Learns a byte-level BPE tokenizer from text: the pair of tokens that stands side by side most often becomes
// a token, again and again. Words are cut as GPT-2 does; no merge goes over their borders.
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

// How often each word stands in a text. Not thread safe: one for each thread, added up in the end.
class WordCounter {
 public:
  static absl::StatusOr<WordCounter> Create();
  // Words are not joined over the ends of texts. Bytes that are not UTF-8 are read as U+FFFD.
  absl::Status AddText(absl::string_view text);
  void AddAll(const WordCounter& other);

  const absl::flat_hash_map<std::string, int64_t>& counts() const { return counts_; }

 private:
  explicit WordCounter(Pattern pattern) : pattern_(std::move(pattern)) {}
  Pattern pattern_;
  absl::flat_hash_map<std::string, int64_t> counts_;
};

struct TrainOptions {
  int64_t vocab = 0;          // tokens in all: the special ones, 256 bytes, and one for each merge
  int64_t min_frequency = 2;  // a pair that is rarer is not merged
  std::vector<std::string> special_tokens = {"<|endoftext|>"};  // get the first ids
};

struct TrainedBpe {
  std::vector<std::string> special_tokens;
  std::vector<std::string> tokens;                  // by id, special ones too; GPT-2's spelling of bytes
  std::vector<std::pair<int32_t, int32_t>> merges;  // ids, in the order learned
};

// UsageError: a vocabulary that is too small or above kMaxVocab, a frequency below 1, special tokens that are
// empty, the same, or spelled like a byte.
absl::Status CheckTrainOptions(const TrainOptions& options);

// Of pairs that are equally frequent the one with the smaller ids is merged first, so that the same counts
// give the same tokenizer. Fewer tokens than asked for where no pair is frequent enough. UsageError: as
// CheckTrainOptions.
absl::StatusOr<TrainedBpe> TrainBpe(const WordCounter& words, const TrainOptions& options);

// The text of a tokenizer.json.
std::string TokenizerJson(const TrainedBpe& trained);

}  // namespace trainctl::tokenizer
