// The system calls made by a save, behind an interface that lets tests inject failures or replay a crash
// after any call. Like the system calls, they return -1 and set errno on failure. Thread-safe.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainctl::checkpoint {

class FileOps {
 public:
  virtual ~FileOps() = default;
  // open(O_WRONLY | O_CREAT | O_EXCL), with O_DIRECT if `direct` is set and the file system supports it.
  virtual int CreateNew(const std::string& path, bool direct);
  virtual int EndDirect(int fd);  // clears O_DIRECT
  virtual ssize_t Write(int fd, const void* data, size_t num_bytes);
  virtual void StartWriteBack(int fd, int64_t offset, int64_t num_bytes);  // a hint; never fails
  virtual int Fsync(int fd);
  virtual int Close(int fd);
  virtual int FsyncDir(const std::string& path);  // also returns 0 if unsupported (see SyncOpenFolder)
  virtual int Mkdir(const std::string& path);
  virtual int Rename(const std::string& from, const std::string& to);
  // Atomically swaps two existing paths with renameat2(RENAME_EXCHANGE). Sets EINVAL or ENOSYS if the file
  // system does not support it.
  virtual int Exchange(const std::string& a, const std::string& b);
  virtual int Unlink(const std::string& path);
  virtual int Rmdir(const std::string& path);
};

FileOps& RealFileOps();

// Creates `path` with `contents` and syncs it. On failure, leaves nothing at `path`.
absl::Status WriteSyncedFile(FileOps& ops, const std::string& path, absl::string_view contents);
// Writes all of `contents`. Retries after a short write or EINTR and returns any other error.
absl::Status WriteFully(FileOps& ops, int fd, absl::string_view contents, const std::string& path);
absl::Status SyncFolder(FileOps& ops, const std::string& path);
// Removes a folder and its contents. A missing folder is not an error.
absl::Status RemoveFolder(FileOps& ops, const std::string& path);

}  // namespace trainctl::checkpoint
