// Converts text, JSONL, and Parquet files to a token dataset on disk: PREFIX.bin, PREFIX.idx, and
// PREFIX.json, which records where the tokens came from. Works as a stream, with one line or piece and a few
// bytes per document in memory.
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
#include "data/row_reader.h"

namespace trainctl::data {

// The name that stands for standard input in PrepareOptions::inputs.
inline constexpr const char* kStandardInput = "-";

struct PrepareOptions {
  // Input files. A document is a line of a .jsonl or .ndjson file, a row of a .parquet file, or else a whole
  // file. Text and JSONL may be compressed with gzip or zstd. kStandardInput is allowed only as the sole
  // input and requires `kind` to be set.
  std::vector<std::string> inputs;
  std::string kind = "auto";  // auto (by file name) | jsonl | parquet | text; applies to all inputs

  bool reads_standard_input() const { return inputs.size() == 1 && inputs[0] == kStandardInput; }
  std::string prefix;
  std::string tokenizer = "byte";  // "byte" or the path of a tokenizer file
  std::string text_field = "text";
  // stop | skip. Applies to bad lines of JSONL and bad rows of Parquet. If they are skipped, they are counted
  // and named in PreparedDataset.
  std::string on_bad_line = "stop";
  // Whether to end each document with the tokenizer's own end-of-document token or, if tokens are bytes, with
  // token 256 (tokens are then uint16).
  bool end_of_document = false;
  bool overwrite = false;
  bool restart = false;  // whether to discard the work of an interrupted preparation
  // Number of tokenizer threads; 0 means one per core. Bytes need none.
  int num_threads = 0;
  // Version of the program. Interrupted work can be continued only by the same version.
  std::string program;

  // Limits on the work that an interruption can lose. Progress is committed when either limit is reached.
  absl::Duration commit_every = absl::Seconds(10);
  int64_t commit_tokens = int64_t{1} << 60;
  // When this becomes true, Prepare commits its progress and returns CancelledError.
  const std::atomic<bool>* stop = nullptr;

  // Callbacks, which may be null. `progress` excludes the work of an earlier preparation; its total is 0 if
  // unknown, as for a pipe. `note` receives a line of text for the user. `reached` is called at certain
  // points for fault injection: "taken" (a text), "data_synced", "committed", "sealed", "renamed_data",
  // "renamed_index", "described", and "cleaned".
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
  FileFingerprint tokenizer_file;  // empty path if tokens are bytes
  TokenType token_type = TokenType::kU8;
  int64_t vocab = 0;            // smallest model.vocab that can read the dataset
  std::string end_of_document;  // end-of-document token, if documents have one; "on" if tokens are bytes
  int64_t documents = 0;
  int64_t tokens = 0;
  std::vector<PreparedSource> sources;
  LeftOutLines left_out;  // total for all sources
  FileFingerprint data;
  FileFingerprint index;
};

// Prepares a dataset. The result does not depend on the number of threads. Empty documents are left out. If
// there is a tokenizer file, its prefix and suffix are added to each text; a whole text, and some MiB per
// thread, are then in memory.
//
// Nothing is written under the final names until all input has been read, and PREFIX.json is written last.
// Work in progress is in PREFIX.bin.part and the files next to it (prepare_state.h). After an interruption,
// the same call continues from the last commit and produces exactly the same bytes as an uninterrupted one.
//
// If an input was modified or replaced, it and all later inputs are processed again; if the options or the
// tokenizer differ, everything is. `note` reports this. Standard input cannot be read again, so it is never
// committed and always starts over.
//
// Returns UsageError if the tokenizer does not exist or lacks a requested end-of-document token, if an input
// has an unsupported kind, or if an output exists. Returns BadDataError if a document is unreadable
// ("file:line: ...") or there is no text at all, and CancelledError if `stop` was set. After an error,
// committed work is kept, and the message says so. After a bad line, the same call with on_bad_line = "skip"
// also continues from that work.
absl::StatusOr<PreparedDataset> Prepare(const PrepareOptions& options);

// Whether an interrupted preparation left work that can be continued.
bool CanGoOn(const std::string& prefix);

// Formats the contents of PREFIX.json, schema "trainctl.dataset.v1".
std::string DatasetJson(const PreparedDataset& dataset);

}  // namespace trainctl::data
