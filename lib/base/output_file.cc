#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/files.h"
#include "base/folder_sync.h"
#include "base/status.h"

namespace trainctl {
namespace {

constexpr int kMostLinks = 40;

// /dev/stdout, or the /dev/fd/63 of a shell's >(...): what the caller has opened is written to as it is.
// Opened anew, a file that it was redirected to would be written over from its start.
std::optional<int> OwnDescriptor(absl::string_view path) {
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  int fd = -1;
  if (!absl::ConsumePrefix(&path, "/dev/fd/") && !absl::ConsumePrefix(&path, "/proc/self/fd/")) {
    return std::nullopt;
  }
  if (!absl::SimpleAtoi(path, &fd) || fd < 0) return std::nullopt;
  return fd;
}

// Where a chain of links ends, whether or not something is there.
absl::StatusOr<std::string> FollowLinks(const std::string& path) {
  std::filesystem::path at = path;
  for (int links = 0; links <= kMostLinks; ++links) {
    std::error_code error;
    if (!std::filesystem::is_symlink(std::filesystem::symlink_status(at, error))) return at.string();
    const std::filesystem::path to = std::filesystem::read_symlink(at, error);
    if (error) return ErrnoError("follow the link", at.string(), error.value());
    at = to.is_absolute() ? to : at.parent_path() / to;
  }
  return ErrnoError("follow the link", path, ELOOP);
}

std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string FullPath(const std::string& path) {
  const absl::StatusOr<std::string> end = FollowLinks(path);
  std::error_code error;
  const std::filesystem::path full = std::filesystem::absolute(end.ok() ? *end : path, error);
  return std::filesystem::weakly_canonical(full, error).string();
}

absl::Status ExistsError(const std::string& path) {
  return UsageError(absl::StrCat(path, " exists; name another file, or replace it with --force"));
}

absl::Status CheckName(const std::string& path) {
  if (path.empty()) return UsageError("the name of the output is empty");
  if (path == "-")
    return UsageError("'-' names no file here; give /dev/stdout, or ./- for a file of that name");
  if (path.find('\0') != std::string::npos) return UsageError("the name of the output holds a zero byte");
  if (path.back() == '/') return UsageError(absl::StrCat(path, " is a folder; the output must be a file"));
  return absl::OkStatus();
}

absl::StatusOr<OutputKind> KindOfTarget(const std::string& path, const std::string& end) {
  struct stat info;
  if (::stat(end.c_str(), &info) != 0) {
    if (errno != ENOENT) return ErrnoError("write", path, errno);
    return OutputKind::kNewFile;
  }
  if (S_ISREG(info.st_mode)) return OutputKind::kRegularFile;
  if (S_ISCHR(info.st_mode) || S_ISFIFO(info.st_mode)) return OutputKind::kStream;
  if (S_ISDIR(info.st_mode)) {
    return UsageError(absl::StrCat(path, " is a folder; the output must be a file"));
  }
  return UsageError(absl::StrCat(path, " is ", S_ISBLK(info.st_mode) ? "a disk" : "a socket",
                                 "; the output must be a file"));
}

absl::Status WriteStream(const std::string& path, absl::string_view contents) {
  if (const std::optional<int> own = OwnDescriptor(path); own.has_value()) {
    return WriteAll(*own, contents, path);
  }
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0 && errno == ENXIO) {
    return EnvironmentError(absl::StrCat(path, " is a pipe that nobody reads; start its reader first"));
  }
  if (fd < 0) return ErrnoError("open", path, errno);
  absl::Status status;
  if (::fcntl(fd, F_SETFL, 0) != 0) status = ErrnoError("open", path, errno);  // a slow reader is waited for
  if (status.ok()) status = WriteAll(fd, contents, path);
  if (::close(fd) != 0 && status.ok()) status = ErrnoError("close", path, errno);
  return status;
}

// A new file beside `target`, open, under a name that nobody has.
absl::StatusOr<int> CreateBeside(const std::string& target, std::string& temporary) {
  for (int attempt = 0;; ++attempt) {
    temporary = absl::StrCat(FolderOf(target), "/.trainctl-", ::getpid(), "-", attempt);
    const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return fd;
    if (errno != EEXIST) return ErrnoError("create a file beside", target, errno);
  }
}

// As an editor would leave it: whose it was and who may read it.
absl::Status TakeOwnerAndMode(int fd, const std::string& target) {
  struct stat before;
  if (::stat(target.c_str(), &before) != 0) return absl::OkStatus();
  const bool has_owner = ::fchown(fd, before.st_uid, before.st_gid) == 0;
  // Without its owner it must not run as this one.
  const mode_t mode = before.st_mode & (has_owner ? mode_t{07777} : mode_t{0777});
  if (::fchmod(fd, mode) != 0) return ErrnoError("set the mode of the file beside", target, errno);
  return absl::OkStatus();
}

absl::Status Publish(const std::string& temporary, const std::string& target, bool overwrite) {
  if (!overwrite) {
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE) == 0) {
      return absl::OkStatus();
    }
    if (errno == EEXIST) return ExistsError(target);
    // A file system that cannot do it: it was looked at a moment ago.
    if (errno != EINVAL && errno != ENOSYS) return ErrnoError("rename to", target, errno);
  }
  if (::rename(temporary.c_str(), target.c_str()) != 0) return ErrnoError("rename to", target, errno);
  return absl::OkStatus();
}

absl::Status WriteFile(const OutputTarget& target, absl::string_view contents, bool overwrite) {
  std::string temporary;
  TRAINCTL_ASSIGN_OR_RETURN(const int fd, CreateBeside(target.path, temporary));
  absl::Status status = WriteAll(fd, contents, target.path);
  if (status.ok() && overwrite) status = TakeOwnerAndMode(fd, target.path);
  if (status.ok() && SyncOpenFile(fd) != 0) status = ErrnoError("sync", target.path, errno);
  if (::close(fd) != 0 && status.ok()) status = ErrnoError("close", target.path, errno);
  if (status.ok()) status = Publish(temporary, target.path, overwrite);
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  return SyncDir(FolderOf(target.path));
}

}  // namespace

bool IsSameFile(const std::string& a, const std::string& b) {
  std::error_code error;
  if (std::filesystem::equivalent(a, b, error)) return true;
  return FullPath(a) == FullPath(b);
}

absl::StatusOr<OutputTarget> FindOutput(const std::string& path, const OutputRules& rules) {
  TRAINCTL_RETURN_IF_ERROR(CheckName(path));
  if (OwnDescriptor(path).has_value()) return OutputTarget{path, OutputKind::kStream};
  OutputTarget target;
  TRAINCTL_ASSIGN_OR_RETURN(target.path, FollowLinks(path));
  TRAINCTL_ASSIGN_OR_RETURN(target.kind, KindOfTarget(path, target.path));
  if (target.kind == OutputKind::kStream) return target;  // nothing that was in it is lost
  for (const std::string& input : rules.inputs) {
    std::error_code none;  // one of the two is not there: they are not the same
    if (!std::filesystem::equivalent(path, input, none)) continue;
    return UsageError(absl::StrCat(path, " is ", input == path ? "" : absl::StrCat(input, ", "),
                                   "an input of this command; name another file to write"));
  }
  if (target.kind == OutputKind::kRegularFile && !rules.overwrite) return ExistsError(path);
  if (::access(FolderOf(target.path).c_str(), W_OK | X_OK) != 0) return ErrnoError("write", path, errno);
  return target;
}

absl::Status WriteOutputFile(const std::string& path, absl::string_view contents, const OutputRules& rules) {
  TRAINCTL_ASSIGN_OR_RETURN(const OutputTarget target, FindOutput(path, rules));
  return target.kind == OutputKind::kStream ? WriteStream(target.path, contents)
                                            : WriteFile(target, contents, rules.overwrite);
}

}  // namespace trainctl
