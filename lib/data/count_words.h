// Counts the words in text, JSONL, and Parquet files in order to train a tokenizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/row_reader.h"
#include "tokenizer/bpe_trainer.h"

namespace trainctl::data {

struct CountWordsOptions {
  // Input files. A document is a line of a .jsonl or .ndjson file, a row of a .parquet file, or else a whole
  // text file.
  std::vector<std::string> files;
  std::string text_field = "text";
  std::string on_bad_line = "stop";  // stop | skip; applies to unreadable JSONL lines
  // Number of threads; 0 means one per core. Each thread processes one file at a time.
  int num_threads = 0;
  size_t piece_bytes = size_t{1} << 20;
  // Called from one thread at a time, though not always from the same one. May be null.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;
};

struct CountedWords {
  tokenizer::WordCounter words;
  LeftOutLines left_out;
};

// Counts the words in all files, which may be compressed (unpacked_file.h). The counts do not depend on the
// number of threads or on compression. Returns UsageError if a file is not text, or BadDataError if it is
// missing or is not readable JSONL.
//
// Each thread keeps its distinct words and one piece of text in memory. A piece ends at the first newline
// after `piece_bytes`, or between two characters if a line is 64 times that long. Words are not split at line
// ends.
absl::StatusOr<CountedWords> CountWords(const CountWordsOptions& options);

}  // namespace trainctl::data
