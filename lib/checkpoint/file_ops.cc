#include "checkpoint/file_ops.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "base/files.h"
#include "base/folder_sync.h"
#include "base/life_signs.h"
#include "base/status.h"

namespace trainctl::checkpoint {

int FileOps::CreateNew(const std::string& path, bool direct) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  if (direct) {
    const int fd = ::open(path.c_str(), kFlags | O_DIRECT, 0644);
    if (fd >= 0 || errno != EINVAL) return fd;
    ::unlink(path.c_str());  // some file systems create it before they refuse the flag
  }
  return ::open(path.c_str(), kFlags, 0644);
}

int FileOps::EndDirect(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags < 0 ? -1 : ::fcntl(fd, F_SETFL, flags & ~O_DIRECT);
}

ssize_t FileOps::Write(int fd, const void* data, size_t num_bytes) {
  Beat();
  return ::write(fd, data, num_bytes);
}

void FileOps::StartWriteBack(int fd, int64_t offset, int64_t num_bytes) {
  ::sync_file_range(fd, offset, num_bytes, SYNC_FILE_RANGE_WRITE);
}

int FileOps::Fsync(int fd) { return SyncOpenFile(fd); }

int FileOps::Close(int fd) { return ::close(fd); }

int FileOps::FsyncDir(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return -1;
  const int result = SyncOpenFolder(fd);
  const int error_number = errno;
  ::close(fd);
  errno = error_number;
  return result;
}

int FileOps::Mkdir(const std::string& path) { return ::mkdir(path.c_str(), 0755); }

int FileOps::Rename(const std::string& from, const std::string& to) {
  return ::rename(from.c_str(), to.c_str());
}

int FileOps::Exchange(const std::string& a, const std::string& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
}

int FileOps::Unlink(const std::string& path) { return ::unlink(path.c_str()); }

int FileOps::Rmdir(const std::string& path) { return ::rmdir(path.c_str()); }

FileOps& RealFileOps() {
  static FileOps ops;
  return ops;
}

absl::Status WriteFully(FileOps& ops, int fd, absl::string_view contents, const std::string& path) {
  while (!contents.empty()) {
    const ssize_t written = ops.Write(fd, contents.data(), contents.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoError("write", path, errno);
    contents.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status WriteSyncedFile(FileOps& ops, const std::string& path, absl::string_view contents) {
  const int fd = ops.CreateNew(path, false);
  if (fd < 0) return ErrnoError("create", path, errno);
  absl::Status status = WriteFully(ops, fd, contents, path);
  // A failed sync may drop the dirty pages and report success the next time: never try it again.
  if (status.ok() && ops.Fsync(fd) != 0) status = ErrnoError("sync", path, errno);
  if (ops.Close(fd) != 0 && status.ok()) status = ErrnoError("close", path, errno);
  if (!status.ok()) ops.Unlink(path);
  return status;
}

absl::Status SyncFolder(FileOps& ops, const std::string& path) {
  if (ops.FsyncDir(path) != 0) return ErrnoError("sync folder", path, errno);
  return absl::OkStatus();
}

absl::Status RemoveFolder(FileOps& ops, const std::string& path) {
  // A link goes, and what it leads to stays.
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR* dir = fd >= 0 ? ::fdopendir(fd) : nullptr;
  if (dir == nullptr) {
    if (errno == ENOENT) return absl::OkStatus();
    if (errno == ENOTDIR || errno == ELOOP)
      return ops.Unlink(path) == 0 ? absl::OkStatus() : ErrnoError("remove", path, errno);
    return ErrnoError("open folder", path, errno);
  }
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(dir)) {
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(dir);
  for (const std::string& name : names) {
    const std::string child = absl::StrCat(path, "/", name);
    if (ops.Unlink(child) == 0 || errno == ENOENT) continue;
    if (errno != EISDIR && errno != EPERM) return ErrnoError("remove", child, errno);
    TRAINCTL_RETURN_IF_ERROR(RemoveFolder(ops, child));  // not ours: a folder inside
  }
  if (ops.Rmdir(path) != 0 && errno != ENOENT) return ErrnoError("remove folder", path, errno);
  return absl::OkStatus();
}

}  // namespace trainctl::checkpoint
