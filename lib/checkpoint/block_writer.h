// Writes one file front to back from a single buffer that the caller fills in place, with an
// XXH3-64 of each chunk taken while the bytes are hot in the cache. The buffer goes to the device
// directly where the file system allows it (O_DIRECT): a save neither copies through the page cache
// nor pushes other data out of it. One thread per writer.
//
//   TRAINCTL_ASSIGN_OR_RETURN(BlockWriter out, BlockWriter::Create(ops, path));
//   while (...) { n = Produce(out.Space()); TRAINCTL_RETURN_IF_ERROR(out.Advance(n)); }
//   TRAINCTL_RETURN_IF_ERROR(out.Finish());
#pragma once

#include <cstddef>
#include <cstdint>
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

class BlockWriter {
 public:
  // `path` must not exist. On any later failure, or when dropped unfinished, the file is removed.
  static absl::StatusOr<BlockWriter> Create(FileOps& ops, const std::string& path);
  BlockWriter(BlockWriter&& other) noexcept;
  BlockWriter& operator=(BlockWriter&&) = delete;
  ~BlockWriter();

  // Room up to the end of the current chunk: never empty, a multiple of 8 as long as all before it was.
  absl::Span<std::byte> Space() const;
  // The first `num_bytes` of Space() are filled.
  absl::Status Advance(size_t num_bytes);
  absl::Status Append(absl::string_view bytes);
  // Writes the rest, syncs once, closes.
  absl::Status Finish();

  int64_t size_bytes() const { return size_bytes_; }
  // Of chunks [i * kChunkBytes, (i + 1) * kChunkBytes) of the file; complete after Finish.
  const std::vector<uint64_t>& chunk_xxh3() const { return chunk_xxh3_; }

 private:
  struct FreeBuffer {
    void operator()(std::byte* buffer) const;
  };
  BlockWriter(FileOps& ops, std::string path, int fd);
  absl::Status Flush();  // a full buffer
  absl::Status WriteOut(size_t begin, size_t end);
  absl::Status LeaveDirect();

  FileOps* ops_;
  std::string path_;
  int fd_;
  std::unique_ptr<std::byte[], FreeBuffer> buffer_;
  size_t filled_bytes_ = 0;
  int64_t size_bytes_ = 0;  // filled and flushed
  bool is_direct_ = true;
  std::vector<uint64_t> chunk_xxh3_;
};

// As stored in manifests.
uint64_t ChecksumXxh3(const void* data, size_t num_bytes);

}  // namespace trainctl::checkpoint
