#include "base/folder_sync.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

#include "base/files.h"
#include "base/folder_paths.h"
#include "base/logging.h"
#include "base/status.h"

namespace trainctl {
namespace {

// EIO, ENOSPC and EDQUOT are not among these errors: they mean that data is lost.
bool IsUnsupported(int error_number) {
  static_assert(EOPNOTSUPP == ENOTSUP);
  return error_number == EINVAL || error_number == ENOSYS || error_number == EOPNOTSUPP;
}

// The descriptor is open, so the file system means the operation. Each of these has been seen on one.
bool IsUnsupportedOfFolder(int error_number) {
  return IsUnsupported(error_number) || error_number == EBADF || error_number == EACCES ||
         error_number == EPERM || error_number == ENOTTY || error_number == EISDIR;
}

int Synced(int result) {
  static std::once_flag warned;
  if (result == 0 || !IsUnsupported(errno)) return result;
  std::call_once(warned, [] {
    LogWarning(
        "a file system of this run cannot sync files, so a power failure may lose checkpoints and logs");
  });
  return 0;
}

}  // namespace

int SyncOpenFile(int fd) { return Synced(::fsync(fd)); }

int SyncOpenFileData(int fd) { return Synced(::fdatasync(fd)); }

int SyncOpenFolder(int fd) { return ::fsync(fd) == 0 || IsUnsupportedOfFolder(errno) ? 0 : -1; }

absl::StatusOr<bool> SyncsFolders(const std::string& folder) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string path, NearestFolder(folder));
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoError("open folder", path, errno);
  const int error_number = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  if (error_number == 0) return true;
  if (IsUnsupportedOfFolder(error_number)) return false;
  return ErrnoError("sync folder", path, error_number);
}

}  // namespace trainctl
