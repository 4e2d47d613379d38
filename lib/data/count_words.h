// The words of text and JSONL files, for the training of a tokenizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tokenizer/bpe_trainer.h"

namespace trainctl::data {

struct CountWordsOptions {
  std::vector<std::string> files;  // .jsonl and .ndjson: a document per line; else text
  std::string text_field = "text";
  int num_threads = 0;  // 0: one per core; each reads a file at a time
  size_t piece_bytes = size_t{1} << 20;
  // May be empty. Of one thread at a time, not always the same.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;
};

// Files may be packed (unpacked_file.h). Text is cut at the first line end behind every `piece_bytes`, or
// between two characters where a line is 64 times as long; words are not cut at line ends. Memory is the
// different words and such a piece, once a thread. The counts do not depend on the threads, nor on the
// packing. UsageError: a file that is not text; BadDataError: one that is missing or not
// readable JSONL.
absl::StatusOr<tokenizer::WordCounter> CountWords(const CountWordsOptions& options);

}  // namespace trainctl::data
