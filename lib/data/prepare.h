// Text and JSONL files into a token dataset on disk: PREFIX.bin, PREFIX.idx and PREFIX.json, which says where
// the tokens came from. Streaming: memory is one line or piece and a few bytes per document.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "data/batch_source.h"
#include "data/index_format.h"
#include "data/jsonl_reader.h"

namespace trainctl::data {

struct PrepareOptions {
  // Plain, or packed with gzip or zstd. .jsonl and .ndjson: a document per line; else a document per file.
  std::vector<std::string> inputs;
  std::string kind = "auto";  // of all inputs: by their names, or "jsonl" or "text"
  std::string prefix;
  std::string tokenizer = "byte";  // or the path of a tokenizer file
  std::string text_field = "text";
  std::string on_bad_line = "stop";  // of JSONL; or "skip": left out, counted and named in PreparedDataset
  // End each document with token 256 (tokens become uint16), or with the tokenizer's own end-of-document
  // token.
  bool end_of_document = false;
  bool overwrite = false;
  bool restart = false;  // pass over what an interrupted preparation left
  int num_threads = 0;   // that tokenize; 0: one per core. Bytes need none.
  std::string program;   // the program's version: another one does not go on from this one's work

  // How much work an interruption may cost: done is made safe after either of them.
  absl::Duration commit_every = absl::Seconds(10);
  int64_t commit_tokens = int64_t{1} << 60;
  const std::atomic<bool>* stop = nullptr;  // once it is true, what is done is made safe: CancelledError

  // Each may be empty. `progress` is not called for what an earlier preparation did; `note` gets a line for
  // people; `reached` is told of moments, for fault injection: "taken" (a text), "data_synced", "committed",
  // "sealed", "renamed_data", "renamed_index", "described", "cleaned".
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;
  std::function<void(absl::string_view line)> note;
  std::function<void(const char* moment)> reached;
};

struct PreparedSource {
  FileFingerprint file;
  int64_t documents = 0;
  int64_t tokens = 0;
  int64_t lines_left_out = 0;
};

struct PreparedDataset {
  std::string prefix;
  std::string tokenizer;
  FileFingerprint tokenizer_file;  // an empty path for bytes
  TokenType token_type = TokenType::kU8;
  int64_t vocab = 0;            // the smallest model.vocab that can read it
  std::string end_of_document;  // the token that could end a document; "on" for bytes
  int64_t documents = 0;
  int64_t tokens = 0;
  std::vector<PreparedSource> sources;
  LeftOutLines left_out;  // of all sources
  FileFingerprint data;
  FileFingerprint index;
};

// Nothing is written under the final names before all input is read; PREFIX.json comes last. Work in progress
// is in PREFIX.bin.part and beside it (prepare_state.h); when it was interrupted, by whatever, the same call
// goes on from the last commit, and its result is byte for byte that of an undisturbed one. What came from
// inputs that are another or have changed, and from all behind the first of them, is made anew; other options
// or another tokenizer begin anew. `note` tells. Empty documents are left out. With a tokenizer file, what it
// puts before and behind a text is there, and the result does not depend on the number of threads; each text
// and some MiB a thread are in memory. UsageError: no such tokenizer, one without an end-of-document token
// where it is asked for, an input that cannot be one, an output that exists. BadDataError: an unreadable
// document ("file:line: ..."), or no text at all. CancelledError: `stop`. After an error what was committed
// stays, and the message says so. After a bad line, the same call with on_bad_line = "skip" continues too.
absl::StatusOr<PreparedDataset> Prepare(const PrepareOptions& options);

// An interrupted preparation left something to go on from.
bool CanGoOn(const std::string& prefix);

// The text of PREFIX.json, schema "trainctl.dataset.v1".
std::string DatasetJson(const PreparedDataset& dataset);

}  // namespace trainctl::data
