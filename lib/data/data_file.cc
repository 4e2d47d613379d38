#include "data/data_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/files.h"
#include "base/status.h"

namespace trainctl::data {

absl::StatusOr<int64_t> CheckDataFile(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return BadDataError(absl::StrCat(path, ": no such data file"));
    return ErrnoError("read", path, errno);
  }
  if (S_ISDIR(info.st_mode)) {
    return BadDataError(absl::StrCat(path, " is a folder; name files, for example ", path, "/*.txt"));
  }
  if (!S_ISREG(info.st_mode)) return BadDataError(absl::StrCat(path, " is not a regular file"));
  if (::access(path.c_str(), R_OK) != 0) return ErrnoError("read", path, errno);
  return static_cast<int64_t>(info.st_size);
}

absl::Status FileChangedError(const std::string& path, int64_t opened_bytes, int64_t now_bytes) {
  return BadDataError(absl::StrCat(path, ": the file had ", opened_bytes,
                                   " bytes when it was opened and has ", now_bytes,
                                   " now; data files must not change under a run"));
}

}  // namespace trainctl::data
