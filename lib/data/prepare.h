// Text and JSONL files into a token dataset on disk: PREFIX.bin, PREFIX.idx and PREFIX.json, which says where
// the tokens came from. Streaming: memory is one line or piece and a few bytes per document.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/batch_source.h"
#include "data/index_format.h"

namespace trainctl::data {

struct PrepareOptions {
  // Plain, or packed with gzip or zstd. .jsonl and .ndjson: a document per line; else a document per file.
  std::vector<std::string> inputs;
  std::string kind = "auto";  // of all inputs: by their names, or "jsonl" or "text"
  std::string prefix;
  std::string tokenizer = "byte";  // or the path of a tokenizer file
  std::string text_field = "text";
  // End each document with token 256 (tokens become uint16), or with the tokenizer's own end-of-document
  // token.
  bool end_of_document = false;
  bool overwrite = false;
  int num_threads = 0;  // that tokenize; 0: one per core. Bytes need none.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;  // may be empty
};

struct PreparedSource {
  FileFingerprint file;
  int64_t documents = 0;
  int64_t tokens = 0;
};

struct PreparedDataset {
  std::string prefix;
  std::string tokenizer;
  FileFingerprint tokenizer_file;  // an empty path for bytes
  TokenType token_type = TokenType::kU8;
  int64_t vocab = 0;  // the smallest model.vocab that can read it
  int64_t documents = 0;
  int64_t tokens = 0;
  std::vector<PreparedSource> sources;
  FileFingerprint data;
  FileFingerprint index;
};

// Nothing is written under the final names before all input is read; PREFIX.json comes last. Empty documents
// are left out. With a tokenizer file, what it puts before and behind a text is there, and the result does
// not depend on the number of threads; each text and some MiB a thread are in memory. UsageError: no such
// tokenizer, one without an end-of-document token where it is asked for, an input that cannot be one, an
// output that exists. BadDataError: an input without a readable document ("file:line:
// ...").
absl::StatusOr<PreparedDataset> Prepare(const PrepareOptions& options);

// The text of PREFIX.json, schema "trainctl.dataset.v1".
std::string DatasetJson(const PreparedDataset& dataset);

}  // namespace trainctl::data
