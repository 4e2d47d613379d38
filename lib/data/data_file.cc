#include "data/data_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/files.h"
#include "base/lfs_pointer.h"
#include "base/life_signs.h"
#include "base/status.h"

namespace trainctl::data {
namespace {

constexpr int kStopCheckMs = 200;

}  // namespace

absl::StatusOr<int64_t> CheckDataFile(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return ErrnoError("read", path, errno);
    const bool is_pattern = path.find_first_of("*?[") != std::string::npos;
    return BadDataError(absl::StrCat(
        "no such data file: ", path,
        is_pattern ? "; on the command line, leave a pattern unquoted so that the shell expands it" : ""));
  }
  if (S_ISDIR(info.st_mode)) {
    return BadDataError(absl::StrCat(path, " is a folder; list files instead, for example ", path, "/*.txt"));
  }
  if (!S_ISREG(info.st_mode)) return BadDataError(absl::StrCat(path, " is not a regular file"));
  if (::access(path.c_str(), R_OK) != 0) return ErrnoError("read", path, errno);
  return static_cast<int64_t>(info.st_size);
}

absl::StatusOr<int64_t> CheckInputFile(const std::string& path) {
  absl::StatusOr<int64_t> size_bytes = CheckDataFile(path);
  if (ExitCodeFor(size_bytes.status()) == ExitCode::kBadData)
    return UsageError(size_bytes.status().message());
  return size_bytes;
}

absl::StatusOr<std::string> FirstBytesOfFile(const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t file_bytes, CheckDataFile(path));
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoError("open", path, errno);
  std::string begin(kLfsPointerPrefixBytes, '\0');
  ssize_t count;
  do {
    count = ::read(fd, begin.data(), begin.size());
  } while (count < 0 && errno == EINTR);
  const int error_number = errno;
  ::close(fd);
  if (count < 0) return ErrnoError("read", path, error_number);
  begin.resize(static_cast<size_t>(count));
  if (IsLfsPointer(begin, file_bytes)) return LfsPointerError(path);
  return begin;
}

absl::Status FileChangedError(const std::string& path, int64_t opened_bytes, int64_t now_bytes) {
  return BadDataError(absl::StrCat(path, ": the file had ", opened_bytes,
                                   " bytes when it was opened and now has ", now_bytes,
                                   "; data files must not change during a run"));
}

SequentialFile::SequentialFile(std::string path)
    : path_(std::move(path)), buffer_(size_t{1} << 18, '\0'), state_(XXH3_createState()) {
  TRAINCTL_CHECK(state_ != nullptr);
  XXH3_64bits_reset(state_.get());
}

SequentialFile::SequentialFile(SequentialFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      is_stream_(other.is_stream_),
      stop_(other.stop_),
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

absl::StatusOr<SequentialFile> SequentialFile::OpenStandardInput(const std::atomic<bool>* stop) {
  SequentialFile file("standard input");
  file.is_stream_ = true;
  file.stop_ = stop;
  file.fd_ = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (file.fd_ < 0) return ErrnoError("read", file.path_, errno);
  return file;
}

absl::Status SequentialFile::WaitForInput() const {
  while (true) {
    if (stop_ != nullptr && *stop_) return absl::CancelledError("stopped");
    pollfd input = {.fd = fd_, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&input, 1, kStopCheckMs);
    if (ready > 0) return absl::OkStatus();  // also at its end
    if (ready < 0 && errno != EINTR) return ErrnoError("wait for", path_, errno);
  }
}

absl::StatusOr<size_t> SequentialFile::ReadSome(size_t begin) {
  while (true) {
    if (is_stream_) TRAINCTL_RETURN_IF_ERROR(WaitForInput());
    const ssize_t count = ::read(fd_, buffer_.data() + begin, buffer_.size() - begin);
    if (count >= 0) return static_cast<size_t>(count);
    if (errno != EINTR && errno != EAGAIN) return ErrnoError("read", path_, errno);
  }
}

absl::StatusOr<absl::Span<const uint8_t>> SequentialFile::Next() {
  TRAINCTL_ASSIGN_OR_RETURN(size_t count, ReadSome(0));
  // A pipe returns small pieces, and the compression of a file is recognized by its first bytes.
  for (size_t more = count; is_stream_ && more > 0 && count < buffer_.size(); count += more) {
    TRAINCTL_ASSIGN_OR_RETURN(more, ReadSome(count));
  }
  Beat();
  bytes_read_ += static_cast<int64_t>(count);
  XXH3_64bits_update(state_.get(), buffer_.data(), count);
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(buffer_.data()), count);
}

}  // namespace trainctl::data
