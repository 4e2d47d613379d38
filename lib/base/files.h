// Files: whole reads (of regular files and of the caller's own pipes, /dev/stdin: nothing else that might
// wait), durable atomic writes, maps, locks. Errors name path and reason. Thread safe unless two name the
// same file.
#pragma once

#include <sys/statvfs.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/lock_owner.h"

namespace trainctl {

// "cannot <action> <path>: <strerror>": EnvironmentError (exit 5).
absl::Status ErrnoError(absl::string_view action, absl::string_view path, int error_number);

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes = int64_t{1} << 31);
// Writes a temporary name beside `path`, syncs it, renames it over `path` and syncs the folder.
absl::Status WriteFileAtomic(const std::string& path, absl::string_view contents);
// Opens a new file of mode 0644 at most for writing, with `flags` (O_APPEND, O_RDWR). Removes any existing
// file of that name first and follows no link. Returns -1 and sets errno on failure.
int OpenNewFile(const std::string& path, int flags);
// All of `contents` into an open file; `path` is for the error.
absl::Status WriteAll(int fd, absl::string_view contents, const std::string& path);
absl::Status AppendFile(const std::string& path, absl::string_view contents);
// With those above it; mode 0755 at most.
absl::Status MakeDirs(const std::string& path);
absl::Status SyncDir(const std::string& path);
absl::Status SyncFile(const std::string& path);
bool PathExists(const std::string& path);
absl::StatusOr<int64_t> FileBytes(const std::string& path);
// The room of a file system for this user.
struct DiskRoom {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
  // File systems on object stores may report a size of 0. Their free bytes mean nothing.
  bool is_known() const { return total_bytes > 0; }
};
DiskRoom RoomOf(const struct ::statvfs& info);
absl::StatusOr<DiskRoom> FindRoom(const std::string& path);
// Bytes that this user can still write below `folder`, which need not exist yet; nullopt if its file system
// reports no size. EnvironmentError if `folder` cannot be made: a file is in the way, or no permission.
absl::StatusOr<std::optional<int64_t>> FreeBytes(const std::string& folder);
absl::Status RemoveAll(const std::string& path);

// A read-only map of a whole file. An empty file maps to an empty span.
class MappedFile {
 public:
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  absl::Span<const uint8_t> bytes() const { return {data_, static_cast<size_t>(size_bytes_)}; }
  const std::string& path() const { return path_; }
  // The file's current size, to notice a file that shrank under the map (reading past it is SIGBUS).
  absl::StatusOr<int64_t> CurrentBytes() const;

 private:
  MappedFile() = default;
  std::string path_;
  const uint8_t* data_ = nullptr;
  int64_t size_bytes_ = 0;
  int fd_ = -1;
};

// An advisory lock (lock_open_file.h) held until destruction; released by the kernel when the process dies.
// The file names its owner (lock_owner.h), also to machines that do not see the lock.
class FileLock {
 public:
  // Does not wait: EnvironmentError when another process holds it; the message has the holder's pid.
  // EnvironmentError with advice if the file system has no locks.
  // `may_follow` is asked about whom the file names, before this process is written there; its error is
  // returned.
  static absl::StatusOr<FileLock> TryLock(
      const std::string& path, const std::function<absl::Status(const LockOwner&)>& may_follow = nullptr);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();
  // For a helper process that must keep the lock until it has cleaned up after this one's death.
  int fd() const { return fd_; }

 private:
  FileLock() = default;
  int fd_ = -1;
  bool is_owner_ = false;  // the file names this process
};

}  // namespace trainctl
