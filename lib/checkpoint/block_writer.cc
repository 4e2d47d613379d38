#include "checkpoint/block_writer.h"

#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/files.h"
#include "base/process_limits.h"
#include "base/status.h"

namespace trainctl::checkpoint {
namespace {

// Large enough that one write at a time keeps a device busy.
constexpr size_t kHalfBytes = size_t{8} << 20;
constexpr size_t kBufferBytes = 2 * kHalfBytes;
constexpr auto kAlignment = static_cast<size_t>(kDirectAlignment);
static_assert(kHalfBytes % kChunkBytes == 0 && kChunkBytes % kAlignment == 0);

// Writes all of it; whether the file is still written directly.
absl::StatusOr<bool> WriteOut(FileOps& ops, int fd, const std::string& path, const std::byte* data,
                              size_t num_bytes, bool is_direct) {
  while (num_bytes > 0) {
    const ssize_t written = ops.Write(fd, data, num_bytes);
    if (written >= 0) {
      data += written;
      num_bytes -= static_cast<size_t>(written);
    } else if (errno == EINVAL && is_direct) {
      // The file system wants another alignment, or a short write broke it.
      if (ops.EndDirect(fd) != 0) return ErrnoError("write", path, errno);
      is_direct = false;
    } else if (errno != EINTR) {
      return ErrnoError("write", path, errno);
    }
  }
  return is_direct;
}

}  // namespace

uint64_t ChecksumXxh3(const void* data, size_t num_bytes) { return XXH3_64bits(data, num_bytes); }

void BlockWriter::FreeBuffer::operator()(std::byte* buffer) const { std::free(buffer); }

BlockWriter::BlockWriter(FileOps& ops, std::string path, int fd)
    : ops_(&ops),
      path_(std::move(path)),
      fd_(fd),
      buffer_(static_cast<std::byte*>(std::aligned_alloc(kAlignment, kBufferBytes))) {}

BlockWriter::BlockWriter(BlockWriter&& other) noexcept
    : ops_(other.ops_),
      path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      buffer_(std::move(other.buffer_)),
      half_(other.half_),
      filled_bytes_(other.filled_bytes_),
      size_bytes_(other.size_bytes_),
      is_direct_(other.is_direct_),
      pending_(std::move(other.pending_)),
      chunk_xxh3_(std::move(other.chunk_xxh3_)) {}

BlockWriter::~BlockWriter() {
  if (fd_ < 0) return;
  if (pending_.valid()) pending_.wait();
  ops_->Close(fd_);
  ops_->Unlink(path_);  // gives the room back; half a file is of no use
}

absl::StatusOr<BlockWriter> BlockWriter::Create(FileOps& ops, const std::string& path) {
  const int fd = ops.CreateNew(path, true);
  if (fd < 0) return ErrnoError("create", path, errno);
  BlockWriter writer(ops, path, fd);
  if (writer.buffer_ == nullptr) return NoMemoryError(kBufferBytes, "for writing a checkpoint");
  return writer;
}

std::byte* BlockWriter::Half() const { return buffer_.get() + half_ * kHalfBytes; }

absl::Span<std::byte> BlockWriter::Space() const {
  return {Half() + filled_bytes_, kChunkBytes - filled_bytes_ % kChunkBytes};
}

absl::Status BlockWriter::Advance(size_t num_bytes) {
  filled_bytes_ += num_bytes;
  size_bytes_ += static_cast<int64_t>(num_bytes);
  if (num_bytes > 0 && filled_bytes_ % kChunkBytes == 0) {
    chunk_xxh3_.push_back(ChecksumXxh3(Half() + filled_bytes_ - kChunkBytes, kChunkBytes));
  }
  return filled_bytes_ == kHalfBytes ? Flush() : absl::OkStatus();
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

absl::Status BlockWriter::AwaitWrite() {
  if (!pending_.valid()) return absl::OkStatus();
  TRAINCTL_ASSIGN_OR_RETURN(is_direct_, pending_.get());
  return absl::OkStatus();
}

absl::Status BlockWriter::Flush() {
  TRAINCTL_RETURN_IF_ERROR(AwaitWrite());
  const int64_t offset = size_bytes_ - static_cast<int64_t>(kHalfBytes);
  const auto write = [ops = ops_, fd = fd_, path = path_, data = Half(), direct = is_direct_,
                      offset]() -> absl::StatusOr<bool> {
    TRAINCTL_ASSIGN_OR_RETURN(const bool still_direct, WriteOut(*ops, fd, path, data, kHalfBytes, direct));
    // Without O_DIRECT the kernel starts on the device now instead of at the sync.
    if (!still_direct) ops->StartWriteBack(fd, offset, kHalfBytes);
    return still_direct;
  };
  try {
    pending_ = std::async(std::launch::async, write);
  } catch (const std::system_error&) {  // no thread to be had: write it here
    TRAINCTL_ASSIGN_OR_RETURN(is_direct_, write());
  }
  half_ = 1 - half_;
  filled_bytes_ = 0;
  return absl::OkStatus();
}

absl::Status BlockWriter::LeaveDirect() {
  if (std::exchange(is_direct_, false) && ops_->EndDirect(fd_) != 0) return ErrnoError("write", path_, errno);
  return absl::OkStatus();
}

absl::Status BlockWriter::Finish() {
  const size_t last_chunk_bytes = filled_bytes_ % kChunkBytes;
  if (last_chunk_bytes > 0) {
    chunk_xxh3_.push_back(ChecksumXxh3(Half() + filled_bytes_ - last_chunk_bytes, last_chunk_bytes));
  }
  TRAINCTL_RETURN_IF_ERROR(AwaitWrite());
  const size_t aligned_bytes = filled_bytes_ - filled_bytes_ % kAlignment;
  TRAINCTL_ASSIGN_OR_RETURN(is_direct_, WriteOut(*ops_, fd_, path_, Half(), aligned_bytes, is_direct_));
  TRAINCTL_RETURN_IF_ERROR(LeaveDirect());
  TRAINCTL_ASSIGN_OR_RETURN(is_direct_, WriteOut(*ops_, fd_, path_, Half() + aligned_bytes,
                                                 filled_bytes_ - aligned_bytes, is_direct_));
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
