// Makes files, and the names in a folder, survive a power failure. Thread-safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace trainctl {

// Calls fsync or fdatasync on an open file. Returns -1 and sets errno on failure. If the file system or the
// kind of file does not support syncing, returns 0 and logs one warning per process.
int SyncOpenFile(int fd);
int SyncOpenFileData(int fd);
// Calls fsync on an open folder. Returns -1 and sets errno on failure. Returns 0 if the file system does not
// support syncing folders, as on some network file systems (see SyncsFolders).
int SyncOpenFolder(int fd);
// Whether the file system of `folder`, which need not exist yet, supports syncing folders. Returns the errors
// of NearestFolder.
absl::StatusOr<bool> SyncsFolders(const std::string& folder);

}  // namespace trainctl
