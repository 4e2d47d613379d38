#include "run/opened_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "checkpoint/examine.h"

namespace trainctl::run {
namespace {

bool IsSame(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// What can be said of a folder that its path no longer leads to.
std::string WhatBecameOf(int fd, const struct stat& opened, const std::string& path) {
  std::error_code error;
  const std::string now = std::filesystem::read_symlink(absl::StrCat("/proc/self/fd/", fd), error).string();
  if (opened.st_nlink == 0 || (!error && absl::EndsWith(now, " (deleted)"))) {
    return "it was removed with all its checkpoints, so there is nothing to continue from. Start a new "
           "launch";
  }
  struct stat found;
  if (error || ::stat(now.c_str(), &found) != 0 || !IsSame(found, opened)) {
    return absl::StrCat(
        "its file system was unmounted or is hidden by another one. The saved checkpoints are still on it: "
        "mount it again, then run: trainctl resume ",
        path);
  }
  const int64_t step = checkpoint::FindNewestCommitted(now + "/checkpoints").step;
  return absl::StrCat("it was moved to ", now, ". It contains ",
                      step < 0 ? "no checkpoint yet" : absl::StrCat("the checkpoint at step ", step),
                      "; continue with: trainctl resume ", now);
}

}  // namespace

absl::StatusOr<OpenedFolder> OpenedFolder::Open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoError("open folder", path, errno);
  return OpenedFolder(path, fd);
}

OpenedFolder::OpenedFolder(OpenedFolder&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

OpenedFolder::~OpenedFolder() {
  if (fd_ >= 0) ::close(fd_);
}

std::string OpenedFolder::id() const {
  struct stat opened;
  if (::fstat(fd_, &opened) != 0) return "";
  return absl::StrCat(opened.st_dev, ":", opened.st_ino);
}

absl::Status OpenedFolder::CheckInPlace() const {
  struct stat opened, found;
  if (::fstat(fd_, &opened) != 0) return absl::OkStatus();
  const bool is_there = ::stat(path_.c_str(), &found) == 0;
  // Another failure (a server that does not answer) says nothing about the folder.
  if (!is_there && errno != ENOENT && errno != ENOTDIR && errno != ESTALE) return absl::OkStatus();
  if (is_there && IsSame(found, opened)) return absl::OkStatus();
  return EnvironmentError(absl::StrCat("the run folder ", path_,
                                       is_there ? " was replaced by a different folder" : " is gone",
                                       " while the run was in progress: ", WhatBecameOf(fd_, opened, path_)));
}

}  // namespace trainctl::run
