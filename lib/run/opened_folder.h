// A folder held open, to notice when its path leads to another one or nowhere: it was renamed, removed or
// unmounted while a run worked in it. Thread safe.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainctl::run {

class OpenedFolder {
 public:
  static absl::StatusOr<OpenedFolder> Open(const std::string& path);
  OpenedFolder(OpenedFolder&& other) noexcept;
  OpenedFolder& operator=(OpenedFolder&&) = delete;
  ~OpenedFolder();

  const std::string& path() const { return path_; }

  // The device and inode numbers, "2049:131". They differ between a folder and its copies.
  std::string id() const;

  // OK as long as the path leads to the folder that was opened; one stat. EnvironmentError says what became
  // of it and where what it held is now.
  absl::Status CheckInPlace() const;

 private:
  OpenedFolder(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_;  // keeps its inode's number from being given to another
};

}  // namespace trainctl::run
