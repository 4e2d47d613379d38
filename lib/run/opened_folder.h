// Holds a folder open in order to detect if it is renamed, removed, or unmounted while a run uses it.
// Thread-safe.
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

  // Returns the device and inode numbers, such as "2049:131". A copy of the folder has a different id.
  std::string id() const;

  // Returns OK if the path still leads to the folder that was opened. Otherwise returns EnvironmentError,
  // which says what happened to the folder and where its contents are now. Costs one stat call.
  absl::Status CheckInPlace() const;

 private:
  OpenedFolder(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_;  // keeps the inode number from being reused
};

}  // namespace trainctl::run
