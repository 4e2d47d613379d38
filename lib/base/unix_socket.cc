#include "base/unix_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"

namespace trainctl {
namespace {

bool IsSameFolder(int fd, const std::string& path) {
  struct stat opened, now;
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &now) == 0 && opened.st_dev == now.st_dev &&
         opened.st_ino == now.st_ino;
}

// A descriptor of the folder that stays open.
absl::StatusOr<int> KeepOpen(const std::string& folder) {
  static std::mutex mutex;
  static std::map<std::string, int>& opened = *new std::map<std::string, int>;
  std::lock_guard lock(mutex);
  const auto it = opened.find(folder);
  if (it != opened.end() && IsSameFolder(it->second, folder)) return it->second;
  const int fd = ::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoError("open folder", folder, errno);
  opened[folder] = fd;  // one that was replaced may still be in use
  return fd;
}

// Whether no other user can connect to the socket, because of its own mode or its folder's.
bool IsPrivate(const std::string& path) {
  struct stat socket, folder;
  if (::lstat(path.c_str(), &socket) != 0 || socket.st_uid != ::geteuid()) return false;
  if ((socket.st_mode & 077) == 0) return true;
  return ::stat(path.substr(0, path.rfind('/') + 1).c_str(), &folder) == 0 && folder.st_uid == ::geteuid() &&
         (folder.st_mode & 077) == 0;
}

// The file has mode 0600 from the moment that it is there. umask(2) would do that to every thread's files;
// Linux gives the file the mode that the descriptor has, less the umask. The second chmod is for an umask
// that takes even the user's own bits, and for kernels that ignore the first: nobody can connect before
// listen(2). Some file systems refuse both, which does not matter in a private folder.
int BindPrivately(int fd, const sockaddr_un& address) {
  (void)::fchmod(fd, 0600);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return errno;
  if (::chmod(address.sun_path, 0600) == 0) return 0;
  const int error = errno;
  if (IsPrivate(address.sun_path)) return 0;
  ::unlink(address.sun_path);
  return error;
}

}  // namespace

absl::StatusOr<std::string> ShortSocketPath(const std::string& path) {
  if (path.size() <= kMaxSocketPathBytes) return path;
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash == 0) return ErrnoError("use the socket", path, ENAMETOOLONG);
  TRAINCTL_ASSIGN_OR_RETURN(const int fd, KeepOpen(path.substr(0, slash)));
  std::string shorter = absl::StrCat("/proc/self/fd/", fd, path.substr(slash));
  if (shorter.size() > kMaxSocketPathBytes) return ErrnoError("use the socket", path, ENAMETOOLONG);
  return shorter;
}

absl::StatusOr<int> BindPrivateSocket(const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string shorter, ShortSocketPath(path));
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  shorter.copy(address.sun_path, kMaxSocketPathBytes);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return ErrnoError("create", "a socket", errno);
  if (const int error = BindPrivately(fd, address); error != 0) {
    ::close(fd);
    return ErrnoError("create the socket", path, error);
  }
  return fd;
}

}  // namespace trainctl
