// Writes a Megatron-compatible token dataset (index_format.h), streaming: memory is 4 bytes a sequence. Both
// files grow under temporary names; Finish syncs them and renames PREFIX.bin, then PREFIX.idx. A writer that
// is destroyed before Finish leaves nothing behind. Not thread safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/index_format.h"

namespace trainctl::data {

class IndexedWriter {
 public:
  // Token types kU8, kU16 and kI32. Files of this prefix are replaced by Finish.
  static absl::StatusOr<std::unique_ptr<IndexedWriter>> Create(const std::string& prefix, TokenType type);
  IndexedWriter(const IndexedWriter&) = delete;
  IndexedWriter& operator=(const IndexedWriter&) = delete;
  ~IndexedWriter();

  // Appends to the document in progress; a document may come in any number of pieces. UsageError for a token
  // that the type cannot hold.
  absl::Status Append(absl::Span<const int32_t> tokens);
  // As Append for uint8 tokens given as bytes, without a copy per token when the type is kU8.
  absl::Status AppendBytes(absl::Span<const uint8_t> bytes);
  // Ends the document in progress, which may be empty.
  void EndDocument();

  // Syncs and renames both files. EndDocument must have been called after the last Append.
  absl::Status Finish();

  int64_t num_documents() const { return static_cast<int64_t>(document_indices_.size()) - 1; }
  int64_t num_tokens() const { return num_tokens_; }

 private:
  IndexedWriter(std::string prefix, TokenType type);
  absl::Status Put(const void* bytes, int64_t count);
  absl::Status Flush();
  void CountTokens(int64_t count);
  absl::Status WriteIndex();

  std::string prefix_;
  TokenType type_;
  std::string data_temporary_;
  std::string index_temporary_;
  int data_fd_ = -1;
  std::string buffer_;
  std::vector<int32_t> sequence_tokens_;
  std::vector<int64_t> document_indices_ = {0};
  int64_t tokens_in_sequence_ = 0;
  int64_t num_tokens_ = 0;
};

}  // namespace trainctl::data
