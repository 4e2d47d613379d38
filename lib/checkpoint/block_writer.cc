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

// Large enough to keep a device busy with one write at a time.
constexpr size_t kBufferBytes = size_t{16} << 20;
constexpr size_t kDirectAlignment = 4096;  // of addresses, offsets and lengths
static_assert(kBufferBytes % kChunkBytes == 0 && kChunkBytes % kDirectAlignment == 0);

}  // namespace

uint64_t ChecksumXxh3(const void* data, size_t num_bytes) { return XXH3_64bits(data, num_bytes); }

void BlockWriter::FreeBuffer::operator()(std::byte* buffer) const { std::free(buffer); }

BlockWriter::BlockWriter(FileOps& ops, std::string path, int fd)
    : ops_(&ops),
      path_(std::move(path)),
      fd_(fd),
      buffer_(static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, kBufferBytes))) {
  TRAINCTL_CHECK_MSG(buffer_ != nullptr, "out of memory for a buffer of ", kBufferBytes, " bytes");
}

BlockWriter::BlockWriter(BlockWriter&& other) noexcept
    : ops_(other.ops_),
      path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      buffer_(std::move(other.buffer_)),
      filled_bytes_(other.filled_bytes_),
      size_bytes_(other.size_bytes_),
      is_direct_(other.is_direct_),
      chunk_xxh3_(std::move(other.chunk_xxh3_)) {}

BlockWriter::~BlockWriter() {
  if (fd_ < 0) return;
  ops_->Close(fd_);
  ops_->Unlink(path_);  // gives the room back; half a file is of no use
}

absl::StatusOr<BlockWriter> BlockWriter::Create(FileOps& ops, const std::string& path) {
  const int fd = ops.CreateNew(path, true);
  if (fd < 0) return ErrnoError("create", path, errno);
  return BlockWriter(ops, path, fd);
}

absl::Span<std::byte> BlockWriter::Space() const {
  return {buffer_.get() + filled_bytes_, kChunkBytes - filled_bytes_ % kChunkBytes};
}

absl::Status BlockWriter::Advance(size_t num_bytes) {
  filled_bytes_ += num_bytes;
  size_bytes_ += static_cast<int64_t>(num_bytes);
  if (num_bytes > 0 && filled_bytes_ % kChunkBytes == 0) {
    chunk_xxh3_.push_back(ChecksumXxh3(buffer_.get() + filled_bytes_ - kChunkBytes, kChunkBytes));
  }
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
  TRAINCTL_RETURN_IF_ERROR(WriteOut(0, filled_bytes_));
  // Without O_DIRECT the kernel starts on the device now instead of at the sync.
  if (!is_direct_)
    ops_->StartWriteBack(fd_, size_bytes_ - static_cast<int64_t>(filled_bytes_), filled_bytes_);
  filled_bytes_ = 0;
  return absl::OkStatus();
}

absl::Status BlockWriter::LeaveDirect() {
  if (std::exchange(is_direct_, false) && ops_->EndDirect(fd_) != 0) return ErrnoError("write", path_, errno);
  return absl::OkStatus();
}

absl::Status BlockWriter::WriteOut(size_t begin, size_t end) {
  while (begin < end) {
    const ssize_t written = ops_->Write(fd_, buffer_.get() + begin, end - begin);
    if (written >= 0) {
      begin += static_cast<size_t>(written);
    } else if (errno == EINVAL && is_direct_) {
      TRAINCTL_RETURN_IF_ERROR(LeaveDirect());  // another alignment, or a short write broke it
    } else if (errno != EINTR) {
      return ErrnoError("write", path_, errno);
    }
  }
  return absl::OkStatus();
}

absl::Status BlockWriter::Finish() {
  const size_t last_chunk_bytes = filled_bytes_ % kChunkBytes;
  if (last_chunk_bytes > 0) {
    chunk_xxh3_.push_back(ChecksumXxh3(buffer_.get() + filled_bytes_ - last_chunk_bytes, last_chunk_bytes));
  }
  const size_t aligned_bytes = filled_bytes_ - filled_bytes_ % kDirectAlignment;
  TRAINCTL_RETURN_IF_ERROR(WriteOut(0, aligned_bytes));
  TRAINCTL_RETURN_IF_ERROR(LeaveDirect());
  TRAINCTL_RETURN_IF_ERROR(WriteOut(aligned_bytes, filled_bytes_));
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
