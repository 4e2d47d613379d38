// The words of text and JSONL files, for the training of a tokenizer.
#pragma once

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
  // May be empty. Of one thread at a time, not always the same.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;
};

// Text is cut at line ends about every MiB. Memory is the different words, once a thread. The counts do not
// depend on the threads. UsageError: a file that is not text; BadDataError: one that is missing or not
// readable JSONL.
absl::StatusOr<tokenizer::WordCounter> CountWords(const CountWordsOptions& options);

}  // namespace trainctl::data
