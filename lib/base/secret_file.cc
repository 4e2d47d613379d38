#include "base/secret_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/escaping.h"
#include "base/files.h"

namespace trainctl {

absl::StatusOr<std::string> RandomHex(size_t num_bytes) {
  std::string bytes(num_bytes, '\0');
  if (::getrandom(bytes.data(), num_bytes, 0) != static_cast<ssize_t>(num_bytes)) {
    return ErrnoError("read", "the kernel's random numbers", errno);
  }
  return absl::BytesToHexString(bytes);
}

absl::Status WriteSecretFile(const std::string& path, absl::string_view contents) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoError("remove", path, errno);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoError("create", path, errno);
  const ssize_t written = ::write(fd, contents.data(), contents.size());
  const int error_number = errno;
  ::close(fd);
  if (written == static_cast<ssize_t>(contents.size())) return absl::OkStatus();
  return ErrnoError("write", path, written < 0 ? error_number : ENOSPC);
}

}  // namespace trainctl
