// File operations: complete reads, durable atomic writes, memory maps, and locks. Reads support regular
// files, as well as the caller's own pipes and /dev/stdin, but not other files on which a read could block.
// Errors include the path and the reason. Thread-safe for different files.
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

// Returns EnvironmentError (exit code 5): "cannot <action> <path>: <strerror>".
absl::Status ErrnoError(absl::string_view action, absl::string_view path, int error_number);

// Reads a whole file. Returns BadDataError if it is larger than `max_bytes` or is not a file of a supported
// type.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes = int64_t{1} << 31);
// Writes a temporary file next to `path`, syncs it, renames it to `path`, and syncs the folder.
absl::Status WriteFileAtomic(const std::string& path, absl::string_view contents);
// Creates a file with mode 0644 or stricter and opens it for writing. `flags` may add O_APPEND or O_RDWR.
// Removes any existing file of that name first and does not follow links. Returns -1 and sets errno on
// failure.
int OpenNewFile(const std::string& path, int flags);
// Writes all of `contents` to an open file. `path` names the file in errors.
absl::Status WriteAll(int fd, absl::string_view contents, const std::string& path);
// Appends to a file, creating it if needed. Does not sync.
absl::Status AppendFile(const std::string& path, absl::string_view contents);
// Creates the folder and its parents with mode 0755 or stricter.
absl::Status MakeDirs(const std::string& path);
// Syncs the folder's names, but not the contents of its files.
absl::Status SyncDir(const std::string& path);
absl::Status SyncFile(const std::string& path);
bool PathExists(const std::string& path);
absl::StatusOr<int64_t> FileBytes(const std::string& path);
// A file system's free space, as available to this user.
struct DiskRoom {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
  // Whether the size is known. File systems on object stores may report a size of 0; their free space is then
  // meaningless.
  bool is_known() const { return total_bytes > 0; }
};
DiskRoom RoomOf(const struct ::statvfs& info);
absl::StatusOr<DiskRoom> FindRoom(const std::string& path);
// Returns the number of bytes that this user can still write below `folder`, which need not exist yet, or
// nullopt if the file system does not report its size. Returns EnvironmentError if `folder` cannot be created
// because a file is in the way or permission is denied.
absl::StatusOr<std::optional<int64_t>> FreeBytes(const std::string& folder);
// Removes a file, or a folder and its contents. Returns OK if there is none.
absl::Status RemoveAll(const std::string& path);

// A read-only memory map of a whole file. An empty file maps to an empty span.
class MappedFile {
 public:
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  absl::Span<const uint8_t> bytes() const { return {data_, static_cast<size_t>(size_bytes_)}; }
  const std::string& path() const { return path_; }
  // Returns the file's current size. Use it to detect that the file has shrunk since it was mapped, because
  // reading past its end raises SIGBUS.
  absl::StatusOr<int64_t> CurrentBytes() const;

 private:
  MappedFile() = default;
  std::string path_;
  const uint8_t* data_ = nullptr;
  int64_t size_bytes_ = 0;
  int fd_ = -1;
};

// An advisory lock (lock_open_file.h) that is held until destruction. The kernel releases it if the process
// dies. The lock file also records the owner (lock_owner.h) for machines that cannot see the lock.
class FileLock {
 public:
  // Tries to take the lock without blocking. Returns EnvironmentError with the holder's pid if another
  // process holds the lock, or with advice if the file system does not support locks. Calls `may_follow` with
  // the previous owner before recording this process in the file, and returns its error, if any.
  static absl::StatusOr<FileLock> TryLock(
      const std::string& path, const std::function<absl::Status(const LockOwner&)>& may_follow = nullptr);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();
  // The descriptor that holds the lock. Pass it to a helper process that must keep the lock until it has
  // cleaned up after this process's death.
  int fd() const { return fd_; }

 private:
  FileLock() = default;
  int fd_ = -1;
  bool is_owner_ = false;  // whether the file records this process as the owner
};

}  // namespace trainctl
