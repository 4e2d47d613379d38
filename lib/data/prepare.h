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
  std::string tokenizer = "byte";
  std::string text_field = "text";
  bool end_of_document = false;  // end each document with token 256 (tokens become uint16)
  bool overwrite = false;
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
  TokenType token_type = TokenType::kU8;
  int64_t vocab = 0;  // the smallest model.vocab that can read it
  int64_t documents = 0;
  int64_t tokens = 0;
  std::vector<PreparedSource> sources;
  FileFingerprint data;
  FileFingerprint index;
};

// Nothing is written under the final names before all input is read; PREFIX.json comes last. Empty documents
// are left out. UsageError: another tokenizer, an input that
// cannot be one, an output that exists. BadDataError: an input without a readable document ("file:line:
// ...").
absl::StatusOr<PreparedDataset> Prepare(const PrepareOptions& options);

// The text of PREFIX.json, schema "trainctl.dataset.v1".
std::string DatasetJson(const PreparedDataset& dataset);

}  // namespace trainctl::data
