#include "checkpoint/block_writer.h"

#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/files.h"
#include "base/status.h"

namespace trainctl::checkpoint {
namespace {

// One chunk: it stays in the L2 cache between being filled, checksummed and copied by write(2),
// which is faster than a larger buffer that saves system calls.
constexpr size_t kBufferBytes = kChunkBytes;
// The kernel starts writing to the device this often instead of at the fsync.
constexpr int64_t kWriteBackBytes = int64_t{16} << 20;

}  // namespace

uint64_t ChecksumXxh3(const void* data, size_t num_bytes) { return XXH3_64bits(data, num_bytes); }

void BlockWriter::FreeBuffer::operator()(std::byte* buffer) const { std::free(buffer); }

BlockWriter::BlockWriter(FileOps& ops, std::string path, int fd)
    : ops_(&ops),
      path_(std::move(path)),
      fd_(fd),
      buffer_(static_cast<std::byte*>(std::aligned_alloc(4096, kBufferBytes))) {
  TRAINCTL_CHECK_MSG(buffer_ != nullptr, "out of memory for a buffer of ", kBufferBytes, " bytes");
}

BlockWriter::BlockWriter(BlockWriter&& other) noexcept
    : ops_(other.ops_),
      path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      buffer_(std::move(other.buffer_)),
      filled_bytes_(other.filled_bytes_),
      size_bytes_(other.size_bytes_),
      written_back_bytes_(other.written_back_bytes_),
      chunk_xxh3_(std::move(other.chunk_xxh3_)) {}

BlockWriter::~BlockWriter() {
  if (fd_ < 0) return;
  ops_->Close(fd_);
  ops_->Unlink(path_);  // gives the room back; half a file is of no use
}

absl::StatusOr<BlockWriter> BlockWriter::Create(FileOps& ops, const std::string& path) {
  const int fd = ops.CreateNew(path);
  if (fd < 0) return ErrnoError("create", path, errno);
  return BlockWriter(ops, path, fd);
}

absl::Span<std::byte> BlockWriter::Space() const {
  return {buffer_.get() + filled_bytes_, kBufferBytes - filled_bytes_};
}

absl::Status BlockWriter::Advance(size_t num_bytes) {
  filled_bytes_ += num_bytes;
  size_bytes_ += static_cast<int64_t>(num_bytes);
  return filled_bytes_ == kBufferBytes ? Flush() : absl::OkStatus();
}

absl::Status BlockWriter::Append(absl::string_view bytes) {
  while (!bytes.empty()) {
    const absl::Span<std::byte> space = Space();
    const size_t count = std::min(space.size(), bytes.size());
    std::memcpy(space.data(), bytes.data(), count);
    bytes.remove_prefix(count);
    TRAINCTL_RETURN_IF_ERROR(Advance(count));
  }
  return absl::OkStatus();
}

absl::Status BlockWriter::Flush() {
  if (filled_bytes_ == 0) return absl::OkStatus();
  chunk_xxh3_.push_back(ChecksumXxh3(buffer_.get(), filled_bytes_));
  const absl::string_view bytes(reinterpret_cast<const char*>(buffer_.get()), filled_bytes_);
  TRAINCTL_RETURN_IF_ERROR(WriteFully(*ops_, fd_, bytes, path_));
  filled_bytes_ = 0;
  if (size_bytes_ - written_back_bytes_ >= kWriteBackBytes) {
    ops_->StartWriteBack(fd_, written_back_bytes_, size_bytes_ - written_back_bytes_);
    written_back_bytes_ = size_bytes_;
  }
  return absl::OkStatus();
}

absl::Status BlockWriter::Finish() {
  TRAINCTL_RETURN_IF_ERROR(Flush());
  // A failed sync may drop the dirty pages and report success the next time: never try it again.
  if (ops_->Fsync(fd_) != 0) return ErrnoError("sync", path_, errno);
  if (ops_->Close(std::exchange(fd_, -1)) != 0) {
    const int error_number = errno;
    ops_->Unlink(path_);
    return ErrnoError("close", path_, error_number);
  }
  return absl::OkStatus();
}

}  // namespace trainctl::checkpoint
