// The system calls that a save makes, behind an interface so that tests can make them fail and can
// replay a crash after any of them. Same meaning as in the manual pages: -1 and errno on failure.
// Thread safe.
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
  // open(O_WRONLY | O_CREAT | O_EXCL), with O_DIRECT when `direct` is set and the file system has it.
  virtual int CreateNew(const std::string& path, bool direct);
  virtual int EndDirect(int fd);  // takes O_DIRECT off
  virtual ssize_t Write(int fd, const void* data, size_t num_bytes);
  virtual void StartWriteBack(int fd, int64_t offset, int64_t num_bytes);  // a hint; never fails
  virtual int Fsync(int fd);
  virtual int Close(int fd);
  virtual int FsyncDir(const std::string& path);
  virtual int Mkdir(const std::string& path);
  virtual int Rename(const std::string& from, const std::string& to);
  // Swaps two existing paths in one step: renameat2(RENAME_EXCHANGE). EINVAL or ENOSYS where the
  // file system cannot.
  virtual int Exchange(const std::string& a, const std::string& b);
  virtual int Unlink(const std::string& path);
  virtual int Rmdir(const std::string& path);
};

FileOps& RealFileOps();

// Creates `path` with `contents` and syncs it; on failure nothing is left at `path`.
absl::Status WriteSyncedFile(FileOps& ops, const std::string& path, absl::string_view contents);
// Writes all of it: short writes and EINTR are continued, anything else is returned.
absl::Status WriteFully(FileOps& ops, int fd, absl::string_view contents, const std::string& path);
absl::Status SyncFolder(FileOps& ops, const std::string& path);
// Removes a folder and what is in it; a missing one is no error.
absl::Status RemoveFolder(FileOps& ops, const std::string& path);

}  // namespace trainctl::checkpoint
