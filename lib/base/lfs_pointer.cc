#include "base/lfs_pointer.h"

#include <sys/stat.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"

namespace trainctl {

bool IsLfsPointer(absl::string_view first_bytes, int64_t file_bytes) {
  if (file_bytes > kMaxLfsPointerBytes) return false;
  // The current name of the format, and the two before its first release; Git LFS still reads all three.
  constexpr absl::string_view kVersions[] = {"version https://git-lfs.github.com/spec/",
                                             "version https://hawser.github.com/spec/",
                                             "version http://git-media.io/v/"};
  static_assert(kVersions[0].size() <= kLfsPointerPrefixBytes);
  return std::any_of(std::begin(kVersions), std::end(kVersions),
                     [&](absl::string_view version) { return absl::StartsWith(first_bytes, version); });
}

absl::Status LfsPointerError(absl::string_view path) {
  return BadDataError(absl::StrCat(path, " ", kIsLfsPointer));
}

absl::Status RefuseLfsPointer(absl::string_view contents, absl::string_view path) {
  return IsLfsPointer(contents, static_cast<int64_t>(contents.size())) ? LfsPointerError(path)
                                                                       : absl::OkStatus();
}

absl::Status RefuseLfsPointerFile(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > kMaxLfsPointerBytes) {
    return absl::OkStatus();
  }
  const absl::StatusOr<std::string> contents = ReadFile(path, kMaxLfsPointerBytes);
  return contents.ok() ? RefuseLfsPointer(*contents, path) : absl::OkStatus();
}

}  // namespace trainctl
