// Writes one file sequentially from a buffer that the caller fills in place, and computes the XXH3-64 of each
// chunk while it is still in the CPU cache. If the file system supports O_DIRECT, the buffer goes straight to
// the device, so a save does not copy through the page cache or evict other data from it. A background thread
// writes one half of the buffer while the caller fills the other. Each writer may be used by only one thread.
//
//   TRAINCTL_ASSIGN_OR_RETURN(BlockWriter out, BlockWriter::Create(ops, path));
//   while (...) { n = Produce(out.Space()); TRAINCTL_RETURN_IF_ERROR(out.Advance(n)); }
//   TRAINCTL_RETURN_IF_ERROR(out.Finish());
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "checkpoint/file_ops.h"

namespace trainctl::checkpoint {

constexpr int64_t kChunkBytes = int64_t{1} << 20;
// Of addresses, offsets and lengths with O_DIRECT. Divides every chunk size.
constexpr int64_t kDirectAlignment = 4096;

class BlockWriter {
 public:
  // Creates `path`, which must not exist. The file is removed if a later call fails or the writer is
  // destroyed before Finish.
  static absl::StatusOr<BlockWriter> Create(FileOps& ops, const std::string& path);
  BlockWriter(BlockWriter&& other) noexcept;
  BlockWriter& operator=(BlockWriter&&) = delete;
  ~BlockWriter();

  // Returns the free space up to the end of the current chunk. It is never empty, and its size is a multiple
  // of 8 as long as the size of every earlier write was.
  absl::Span<std::byte> Space() const;
  // Appends the first `num_bytes` of Space(), which the caller has filled.
  absl::Status Advance(size_t num_bytes);
  absl::Status Append(absl::string_view bytes);
  // Writes the remaining bytes, syncs once and closes the file.
  absl::Status Finish();

  int64_t size_bytes() const { return size_bytes_; }
  // The hash of each chunk [i * kChunkBytes, (i + 1) * kChunkBytes) of the file. Complete after Finish.
  const std::vector<uint64_t>& chunk_xxh3() const { return chunk_xxh3_; }

 private:
  struct FreeBuffer {
    void operator()(std::byte* buffer) const;
  };
  BlockWriter(FileOps& ops, std::string path, int fd);
  std::byte* Half() const;  // the half being filled
  absl::Status Flush();     // writes a full half
  absl::Status AwaitWrite();
  absl::Status LeaveDirect();

  FileOps* ops_;
  std::string path_;
  int fd_;
  std::unique_ptr<std::byte[], FreeBuffer> buffer_;
  int half_ = 0;
  size_t filled_bytes_ = 0;  // bytes filled in the current half
  int64_t size_bytes_ = 0;   // filled and flushed bytes
  bool is_direct_ = true;    // whether O_DIRECT is on; do not access while a write is pending
  std::future<absl::StatusOr<bool>> pending_;
  std::vector<uint64_t> chunk_xxh3_;
};

// Returns the XXH3-64 checksum that manifests store.
uint64_t ChecksumXxh3(const void* data, size_t num_bytes);

}  // namespace trainctl::checkpoint
