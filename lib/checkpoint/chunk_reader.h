// Reads byte ranges from a checkpoint's files and verifies each chunk before returning any of its bytes.
// Keeps one file open and one block of chunks in memory. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/manifest.h"

namespace trainctl::checkpoint {

// Opens a file for reading. Returns BadDataError if it is missing or does not have this size.
absl::StatusOr<int> OpenSizedFile(const std::string& path, int64_t size_bytes);

class ChunkReader {
 public:
  // `manifest` must outlive this object.
  ChunkReader(std::string folder, const Manifest& manifest);
  ChunkReader(const ChunkReader&) = delete;
  ~ChunkReader();

  // Returns verified bytes that start at `offset` in the file: at least one and at most `max_bytes`. The span
  // is valid until the next call. A BadDataError names the file, chunk and byte range.
  absl::StatusOr<absl::Span<const std::byte>> BytesAt(int file, int64_t offset, int64_t max_bytes);

 private:
  struct FreeBlock {
    void operator()(std::byte* block) const;
  };
  absl::Status OpenFile(int file);
  absl::Status LoadBlock(int64_t first_chunk, int64_t num_chunks);

  std::string folder_;
  const Manifest& manifest_;
  int file_ = -1;
  int fd_ = -1;
  bool is_direct_ = false;
  std::unique_ptr<std::byte[], FreeBlock> block_;
  int64_t block_capacity_ = 0;
  int64_t block_begin_ = 0;  // file offset of the first byte in the block
  int64_t block_bytes_ = 0;
};

}  // namespace trainctl::checkpoint
