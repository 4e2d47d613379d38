// Writes a Megatron-compatible token dataset (index_format.h) as a stream, using 12 bytes of memory per
// document. The dataset grows in PREFIX.bin.part and PREFIX.documents.part (the number of tokens of each
// document as int64) and is published by renaming files.
//
// Data survives a crash once Commit has returned, and CutBack continues from there. The destructor removes
// the part files unless Keep was called. Not thread-safe. Only one writer may use a prefix at a time, across
// all processes.
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
  // Starts a new dataset by calling Open and then CutBack(0, 0). Supports the token types kU8, kU16, and
  // kI32.
  static absl::StatusOr<std::unique_ptr<IndexedWriter>> Create(const std::string& prefix, TokenType type);
  // Locks the prefix without changing the files of an earlier writer. The next call must be CutBack or
  // Publish. Returns EnvironmentError if another writer holds the lock.
  static absl::StatusOr<std::unique_ptr<IndexedWriter>> Open(const std::string& prefix, TokenType type);
  IndexedWriter(const IndexedWriter&) = delete;
  IndexedWriter& operator=(const IndexedWriter&) = delete;
  ~IndexedWriter();

  // Continues after the first `documents` documents of the part files, which must contain exactly `tokens`
  // tokens, and discards everything after them. Returns BadDataError if the part files do not contain that
  // much.
  absl::Status CutBack(int64_t documents, int64_t tokens);

  // Appends tokens to the current document, which may arrive in any number of pieces. Returns UsageError if
  // the type cannot represent a token.
  absl::Status Append(absl::Span<const int32_t> tokens);
  // Like Append, but takes uint8 tokens as bytes. If the type is kU8, avoids converting each token.
  absl::Status AppendBytes(absl::Span<const uint8_t> bytes);
  // Ends the current document, which may be empty.
  void EndDocument();

  // Syncs all ended documents to disk.
  absl::Status Commit();
  // Keeps the part files when this object is destroyed.
  void Keep() { is_kept_ = true; }

  // Commits, then writes PREFIX.idx.part. The last Append must have been followed by EndDocument.
  absl::Status Seal();
  // Renames the files written by Seal to PREFIX.bin and PREFIX.idx, or completes an earlier call that was
  // interrupted. Calls `reached`, which may be null, with "renamed_data" and "renamed_index".
  absl::Status Publish(const std::function<void(const char*)>& reached = {});
  // Calls Seal and Publish.
  absl::Status Finish();

  int64_t num_documents() const { return static_cast<int64_t>(document_indices_.size()) - 1; }
  int64_t num_tokens() const { return num_tokens_; }
  int64_t ended_tokens() const { return ended_tokens_; }  // tokens in ended documents only

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
  int documents_fd_ = -1;  // holds the lock
  int data_fd_ = -1;
  bool is_kept_ = false;
  std::string buffer_;
  // Token counts, as bytes, of ended documents that are not in PREFIX.documents.part yet.
  std::string ended_;
  std::vector<int32_t> sequence_tokens_;
  std::vector<int64_t> document_indices_ = {0};
  int64_t tokens_in_sequence_ = 0;
  int64_t num_tokens_ = 0;
  int64_t ended_tokens_ = 0;
};

}  // namespace trainctl::data
