#include "base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/folder_paths.h"
#include "base/folder_sync.h"
#include "base/lock_open_file.h"
#include "base/process_limits.h"
#include "base/status.h"

namespace trainctl {
namespace {

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int Close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

std::string ParentOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// /dev/stdin, or the /dev/fd/63 of a shell's <(...): what the caller has opened to be read to its end.
bool IsOwnDescriptor(absl::string_view path) {
  return absl::StartsWith(path, "/dev/") || absl::StartsWith(path, "/proc/self/fd/");
}

}  // namespace

absl::Status ErrnoError(absl::string_view action, absl::string_view path, int error_number) {
  const bool is_limit = error_number == EFBIG || error_number == EMFILE;
  return EnvironmentError(absl::StrCat("cannot ", action, " ", path, ": ", std::strerror(error_number),
                                       is_limit ? absl::StrCat(" (", LimitsText(), ")") : ""));
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  // A pipe that nobody writes to must not hold up its reader: not to open, and then not to read.
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return ErrnoError("open", path, errno);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return ErrnoError("stat", path, errno);
  if (S_ISDIR(info.st_mode)) return ErrnoError("read", path, EISDIR);
  if (!S_ISREG(info.st_mode)) {
    if (!IsOwnDescriptor(path)) return BadDataError(absl::StrCat(path, " is not a regular file"));
    if (::fcntl(fd.get(), F_SETFL, 0) != 0) return ErrnoError("open", path, errno);
  }
  std::string contents;
  std::string buffer(1 << 16, '\0');
  while (true) {
    const ssize_t count = ::read(fd.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoError("read", path, errno);
    if (count == 0) return contents;
    contents.append(buffer.data(), static_cast<size_t>(count));
    if (static_cast<int64_t>(contents.size()) > max_bytes) {
      return BadDataError(absl::StrCat(path, " is larger than ", max_bytes, " bytes"));
    }
  }
}

absl::Status WriteAll(int fd, absl::string_view contents, const std::string& path) {
  while (!contents.empty()) {
    const ssize_t written = ::write(fd, contents.data(), contents.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoError("write", path, errno);
    contents.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

int OpenNewFile(const std::string& path, int flags) {
  ::unlink(path.c_str());
  return ::open(path.c_str(), flags | O_CREAT | O_EXCL | O_CLOEXEC, 0644);  // O_EXCL follows no link
}

absl::Status WriteFileAtomic(const std::string& path, absl::string_view contents) {
  const std::string temporary = absl::StrCat(path, ".tmp.", ::getpid());
  {
    Fd fd(OpenNewFile(temporary, O_WRONLY));
    if (fd.get() < 0) return ErrnoError("create", temporary, errno);
    absl::Status status = WriteAll(fd.get(), contents, temporary);
    if (status.ok() && SyncOpenFile(fd.get()) != 0) status = ErrnoError("sync", temporary, errno);
    if (fd.Close() != 0 && status.ok()) status = ErrnoError("close", temporary, errno);
    if (!status.ok()) {
      ::unlink(temporary.c_str());
      return status;
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error_number = errno;
    ::unlink(temporary.c_str());
    return ErrnoError("rename to", path, error_number);
  }
  return SyncDir(ParentOf(path));
}

absl::Status AppendFile(const std::string& path, absl::string_view contents) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (fd.get() < 0) return ErrnoError("open", path, errno);
  return WriteAll(fd.get(), contents, path);
}

absl::Status MakeDirs(const std::string& path) {
  for (size_t end = 0; end != std::string::npos;) {
    end = path.find('/', end + 1);
    const std::string folder = path.substr(0, end);
    std::error_code error;
    if (std::filesystem::is_directory(folder, error)) continue;
    if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST)
      return ErrnoError("create folder", folder, errno);
    if (!std::filesystem::is_directory(folder, error)) return ErrnoError("create folder", folder, ENOTDIR);
  }
  return absl::OkStatus();
}

absl::Status SyncDir(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) return ErrnoError("open folder", path, errno);
  if (SyncOpenFolder(fd.get()) != 0) return ErrnoError("sync folder", path, errno);
  return absl::OkStatus();
}

absl::Status SyncFile(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return ErrnoError("open", path, errno);
  if (SyncOpenFile(fd.get()) != 0) return ErrnoError("sync", path, errno);
  return absl::OkStatus();
}

bool PathExists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

absl::StatusOr<int64_t> FileBytes(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return ErrnoError("stat", path, errno);
  return static_cast<int64_t>(info.st_size);
}

DiskRoom RoomOf(const struct ::statvfs& info) {
  const auto bytes_of = [&](uint64_t blocks) {
    int64_t bytes = 0;
    return __builtin_mul_overflow(blocks, info.f_frsize, &bytes) ? INT64_MAX : bytes;
  };
  return {.free_bytes = bytes_of(info.f_bavail), .total_bytes = bytes_of(info.f_blocks)};
}

absl::StatusOr<DiskRoom> FindRoom(const std::string& path) {
  struct ::statvfs info = {};
  if (::statvfs(path.c_str(), &info) == 0) return RoomOf(info);
  // Some file systems and system call filters have no answer, which does not keep a run from writing.
  if (errno == ENOSYS || errno == EOPNOTSUPP || errno == EPERM || errno == EOVERFLOW) return DiskRoom{};
  return ErrnoError("ask for the free space of", path, errno);
}

absl::StatusOr<std::optional<int64_t>> FreeBytes(const std::string& folder) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string path, NearestFolder(folder));
  TRAINCTL_ASSIGN_OR_RETURN(const DiskRoom room, FindRoom(path));
  return room.is_known() ? std::optional(room.free_bytes) : std::nullopt;
}

absl::Status RemoveAll(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) return ErrnoError("remove", path, error.value());
  return absl::OkStatus();
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  MappedFile file;
  file.path_ = path;
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd_ < 0) return ErrnoError("open", path, errno);
  struct stat info;
  if (::fstat(file.fd_, &info) != 0) return ErrnoError("stat", path, errno);
  if (!S_ISREG(info.st_mode)) return BadDataError(absl::StrCat(path, " is not a regular file"));
  if (info.st_size > 0) {
    void* map = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, file.fd_, 0);
    if (map == MAP_FAILED) return ErrnoError("map", path, errno);
    file.data_ = static_cast<const uint8_t*>(map);
    file.size_bytes_ = info.st_size;
  }
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      fd_(std::exchange(other.fd_, -1)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(fd_, other.fd_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(size_bytes_));
  if (fd_ >= 0) ::close(fd_);
}

absl::StatusOr<int64_t> MappedFile::CurrentBytes() const {
  struct stat info;
  if (::fstat(fd_, &info) != 0) return ErrnoError("stat", path_, errno);
  return static_cast<int64_t>(info.st_size);
}

absl::StatusOr<FileLock> FileLock::TryLock(const std::string& path,
                                           const std::function<absl::Status(const LockOwner&)>& may_follow) {
  FileLock lock;
  lock.fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (lock.fd_ < 0) return ErrnoError("open", path, errno);
  TRAINCTL_ASSIGN_OR_RETURN(const bool is_locked, TryLockOpenFile(lock.fd_, LockKind::kExclusive, path));
  if (!is_locked) {
    const int64_t pid = ReadLockOwner(path).pid;
    return EnvironmentError(
        absl::StrCat(path, " is locked by ", pid > 0 ? absl::StrCat("process ", pid) : "another process"));
  }
  if (may_follow) TRAINCTL_RETURN_IF_ERROR(may_follow(ReadLockOwner(path)));
  const std::string text = FormatLockOwner(ThisProcessAsOwner());
  // Synced: other machines shall see it at once.
  if (::ftruncate(lock.fd_, 0) != 0 || ::pwrite(lock.fd_, text.data(), text.size(), 0) < 0 ||
      SyncOpenFile(lock.fd_) != 0) {
    return ErrnoError("write", path, errno);
  }
  lock.is_owner_ = true;
  return lock;
}

FileLock::FileLock(FileLock&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), is_owner_(std::exchange(other.is_owner_, false)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(is_owner_, other.is_owner_);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ < 0) return;
  if (is_owner_) {
    // No other machine needs to ask whether this process is still there. Best effort.
    const std::string text = FormatLockOwner({.pid = ::getpid()});
    if (::ftruncate(fd_, 0) == 0) (void)!::pwrite(fd_, text.data(), text.size(), 0);
  }
  ::close(fd_);
}

}  // namespace trainctl
