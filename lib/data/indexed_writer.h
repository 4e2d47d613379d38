// Writes a Megatron-compatible token dataset (index_format.h), streaming: memory is 12 bytes a document. It
// grows in PREFIX.bin.part and PREFIX.documents.part (int64 tokens of each document) and is published by
// renames. What Commit has returned for survives a crash; CutBack goes on behind it. A writer that is
// destroyed removes its part files unless Keep was called. Not thread safe; one writer a prefix, whatever
// the process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/index_format.h"

namespace trainctl::data {

class IndexedWriter {
 public:
  // Token types kU8, kU16 and kI32. Begins a dataset: Open and CutBack(0, 0).
  static absl::StatusOr<std::unique_ptr<IndexedWriter>> Create(const std::string& prefix, TokenType type);
  // Takes the prefix for itself, and touches nothing that an earlier writer left: CutBack must be next, but
  // for Publish. EnvironmentError while another writer has it.
  static absl::StatusOr<std::unique_ptr<IndexedWriter>> Open(const std::string& prefix, TokenType type);
  IndexedWriter(const IndexedWriter&) = delete;
  IndexedWriter& operator=(const IndexedWriter&) = delete;
  ~IndexedWriter();

  // Goes on behind the first `documents` of the part files, which must have `tokens` tokens, and drops what
  // lies behind them. BadDataError when the part files do not have that.
  absl::Status CutBack(int64_t documents, int64_t tokens);

  // Appends to the document in progress; a document may come in any number of pieces. UsageError for a token
  // that the type cannot hold.
  absl::Status Append(absl::Span<const int32_t> tokens);
  // As Append for uint8 tokens given as bytes, without a copy per token when the type is kU8.
  absl::Status AppendBytes(absl::Span<const uint8_t> bytes);
  // Ends the document in progress, which may be empty.
  void EndDocument();

  // The documents that ended are on the disk when it returns.
  absl::Status Commit();
  // Leave the part files when this is destroyed.
  void Keep() { is_kept_ = true; }

  // Commit, then PREFIX.idx.part. EndDocument must have been called after the last Append.
  absl::Status Seal();
  // Renames what Seal left to PREFIX.bin and PREFIX.idx; goes on where an earlier one was cut short.
  // `reached` (may be empty) is told of "renamed_data" and "renamed_index".
  absl::Status Publish(const std::function<void(const char*)>& reached = {});
  // Seal and Publish.
  absl::Status Finish();

  int64_t num_documents() const { return static_cast<int64_t>(document_indices_.size()) - 1; }
  int64_t num_tokens() const { return num_tokens_; }
  int64_t ended_tokens() const { return ended_tokens_; }  // of the documents that ended

  std::string data_part() const { return prefix_ + ".bin.part"; }
  std::string index_part() const { return prefix_ + ".idx.part"; }
  std::string documents_part() const { return prefix_ + ".documents.part"; }

 private:
  IndexedWriter(std::string prefix, TokenType type);
  absl::Status Put(const void* bytes, int64_t count);
  absl::Status Flush();
  void CountTokens(int64_t count);
  absl::Status ReadDocuments(int64_t documents, int64_t tokens);
  absl::Status WriteIndex();

  std::string prefix_;
  TokenType type_;
  int documents_fd_ = -1;  // locked
  int data_fd_ = -1;
  bool is_kept_ = false;
  std::string buffer_;
  std::string ended_;  // the tokens of documents that are not in PREFIX.documents.part yet, as bytes
  std::vector<int32_t> sequence_tokens_;
  std::vector<int64_t> document_indices_ = {0};
  int64_t tokens_in_sequence_ = 0;
  int64_t num_tokens_ = 0;
  int64_t ended_tokens_ = 0;
};

}  // namespace trainctl::data
