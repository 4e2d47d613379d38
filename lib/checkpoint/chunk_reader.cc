#include "checkpoint/chunk_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/lfs_pointer.h"
#include "base/life_signs.h"
#include "base/process_limits.h"
#include "base/status.h"
#include "checkpoint/block_writer.h"

namespace trainctl::checkpoint {
namespace {

constexpr int64_t kBlockBytes = int64_t{8} << 20;

// With or without O_DIRECT; whether it worked.
bool SetDirect(int fd, bool direct) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

// Up to three tensors that have bytes in [begin, end) of the file, for an error message.
std::string TensorsIn(const Manifest& manifest, int file, int64_t begin, int64_t end) {
  std::string names;
  int count = 0;
  const int64_t data_offset = manifest.files[file].data_offset;
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    for (const Piece& piece : manifest.pieces[i]) {
      const int64_t piece_begin = data_offset + piece.offset_bytes;
      const int64_t piece_end = piece_begin + piece.box.Count() * DTypeBytes(manifest.tensors[i].dtype);
      if (piece.file != file || piece_end <= begin || piece_begin >= end) continue;
      if (++count <= 3) absl::StrAppend(&names, count > 1 ? ", " : "", manifest.tensors[i].name);
      break;
    }
  }
  if (count == 0) return "the header";
  if (count > 3) absl::StrAppend(&names, " and ", count - 3, " more");
  return absl::StrCat(count > 1 ? "tensors " : "tensor ", names);
}

}  // namespace

absl::StatusOr<int> OpenSizedFile(const std::string& path, int64_t size_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) return BadDataError(absl::StrCat(path, " is missing"));
  if (fd < 0) return ErrnoError("open", path, errno);
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    const int error_number = errno;
    ::close(fd);
    return ErrnoError("stat", path, error_number);
  }
  if (!S_ISREG(info.st_mode) || info.st_size != size_bytes) {
    ::close(fd);
    TRAINCTL_RETURN_IF_ERROR(RefuseLfsPointerFile(path));
    return BadDataError(absl::StrCat(path, ": damaged: it has ", info.st_size, " bytes instead of ",
                                     size_bytes, info.st_size < size_bytes ? " (truncated)" : ""));
  }
  return fd;
}

ChunkReader::ChunkReader(std::string folder, const Manifest& manifest)
    : folder_(std::move(folder)), manifest_(manifest) {}

void ChunkReader::FreeBlock::operator()(std::byte* block) const { std::free(block); }

ChunkReader::~ChunkReader() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status ChunkReader::OpenFile(int file) {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  file_ = -1;
  block_bytes_ = 0;
  const FileEntry& entry = manifest_.files[file];
  TRAINCTL_ASSIGN_OR_RETURN(fd_, OpenSizedFile(absl::StrCat(folder_, "/", entry.name), entry.size_bytes));
  // Loading is done once: past the page cache, which is slower and would lose other data. Where that
  // does not work it is read as usual.
  is_direct_ = SetDirect(fd_, true);
  file_ = file;
  const int64_t capacity = std::max(kBlockBytes, entry.chunk_bytes);
  if (capacity > block_capacity_) {
    block_.reset(static_cast<std::byte*>(
        std::aligned_alloc(static_cast<size_t>(kDirectAlignment), static_cast<size_t>(capacity))));
    if (block_ == nullptr) {
      block_capacity_ = 0;
      return NoMemoryError(capacity, "for reading a checkpoint");
    }
    block_capacity_ = capacity;
  }
  return absl::OkStatus();
}

absl::Status ChunkReader::LoadBlock(int64_t first_chunk, int64_t num_chunks) {
  const FileEntry& entry = manifest_.files[file_];
  const std::string path = absl::StrCat(folder_, "/", entry.name);
  block_bytes_ = 0;
  block_begin_ = first_chunk * entry.chunk_bytes;
  const int64_t wanted = std::min(num_chunks * entry.chunk_bytes, entry.size_bytes - block_begin_);
  int64_t got = 0;
  // Whole units, which ends behind the file's end and not behind the block's.
  const int64_t asked = (wanted + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
  while (got < wanted) {
    const ssize_t count =
        ::pread(fd_, block_.get() + got, static_cast<size_t>(asked - got), block_begin_ + got);
    Beat();
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EINVAL && is_direct_) {
      is_direct_ = false;
      if (SetDirect(fd_, false)) continue;
    }
    if (count <= 0) {
      const std::string where =
          absl::StrCat(path, ": bytes ", block_begin_ + got, " to ", block_begin_ + wanted, " (",
                       TensorsIn(manifest_, file_, block_begin_, block_begin_ + wanted), ") ");
      if (count == 0) return BadDataError(absl::StrCat(where, "are missing: the file was truncated"));
      if (errno != EIO) return ErrnoError("read", path, errno);
      return BadDataError(absl::StrCat(where, "cannot be read: ", std::strerror(errno)));
    }
    got += count;
  }
  for (int64_t chunk = first_chunk; chunk * entry.chunk_bytes < block_begin_ + wanted; ++chunk) {
    const int64_t begin = chunk * entry.chunk_bytes;
    const int64_t num_bytes = std::min(entry.chunk_bytes, entry.size_bytes - begin);
    const uint64_t checksum =
        ChecksumXxh3(block_.get() + (begin - block_begin_), static_cast<size_t>(num_bytes));
    if (checksum == entry.chunk_xxh3[chunk]) continue;
    return BadDataError(absl::StrFormat(
        "%s: damaged: chunk %d (bytes %d to %d, %s) has checksum %016x, but the manifest says %016x", path,
        chunk, begin, begin + num_bytes, TensorsIn(manifest_, file_, begin, begin + num_bytes), checksum,
        entry.chunk_xxh3[chunk]));
  }
  block_bytes_ = wanted;
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const std::byte>> ChunkReader::BytesAt(int file, int64_t offset,
                                                                 int64_t max_bytes) {
  if (file != file_) TRAINCTL_RETURN_IF_ERROR(OpenFile(file));
  if (offset < block_begin_ || offset >= block_begin_ + block_bytes_) {
    const int64_t chunk_bytes = manifest_.files[file].chunk_bytes;
    const int64_t first = offset / chunk_bytes;
    const int64_t last = (offset + max_bytes - 1) / chunk_bytes;
    const int64_t most = std::max<int64_t>(1, block_capacity_ / chunk_bytes);
    TRAINCTL_RETURN_IF_ERROR(LoadBlock(first, std::min(last - first + 1, most)));
  }
  const int64_t skip = offset - block_begin_;
  const int64_t num_bytes = std::min(max_bytes, block_bytes_ - skip);
  return absl::Span<const std::byte>(block_.get() + skip, static_cast<size_t>(num_bytes));
}

}  // namespace trainctl::checkpoint
