#include "data/data_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/files.h"
#include "base/life_signs.h"
#include "base/status.h"

namespace trainctl::data {

absl::StatusOr<int64_t> CheckDataFile(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return BadDataError(absl::StrCat(path, ": no such data file"));
    return ErrnoError("read", path, errno);
  }
  if (S_ISDIR(info.st_mode)) {
    return BadDataError(absl::StrCat(path, " is a folder; name files, for example ", path, "/*.txt"));
  }
  if (!S_ISREG(info.st_mode)) return BadDataError(absl::StrCat(path, " is not a regular file"));
  if (::access(path.c_str(), R_OK) != 0) return ErrnoError("read", path, errno);
  return static_cast<int64_t>(info.st_size);
}

absl::Status FileChangedError(const std::string& path, int64_t opened_bytes, int64_t now_bytes) {
  return BadDataError(absl::StrCat(path, ": the file had ", opened_bytes,
                                   " bytes when it was opened and has ", now_bytes,
                                   " now; data files must not change under a run"));
}

SequentialFile::SequentialFile(std::string path)
    : path_(std::move(path)), buffer_(size_t{1} << 18, '\0'), state_(XXH3_createState()) {
  TRAINCTL_CHECK(state_ != nullptr);
  XXH3_64bits_reset(state_.get());
}

SequentialFile::SequentialFile(SequentialFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      bytes_read_(other.bytes_read_),
      buffer_(std::move(other.buffer_)),
      state_(std::move(other.state_)) {}

SequentialFile::~SequentialFile() {
  if (fd_ >= 0) ::close(fd_);
}

absl::StatusOr<SequentialFile> SequentialFile::Open(const std::string& path) {
  TRAINCTL_RETURN_IF_ERROR(CheckDataFile(path).status());
  SequentialFile file(path);
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd_ < 0) return ErrnoError("open", path, errno);
  ::posix_fadvise(file.fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
  return file;
}

absl::StatusOr<absl::Span<const uint8_t>> SequentialFile::Next() {
  ssize_t count;
  do {
    count = ::read(fd_, buffer_.data(), buffer_.size());
  } while (count < 0 && errno == EINTR);
  if (count < 0) return ErrnoError("read", path_, errno);
  Beat();
  bytes_read_ += count;
  XXH3_64bits_update(state_.get(), buffer_.data(), static_cast<size_t>(count));
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(buffer_.data()), static_cast<size_t>(count));
}

}  // namespace trainctl::data
