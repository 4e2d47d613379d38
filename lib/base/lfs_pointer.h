// Recognizes Git LFS pointers: small text files that a clone has in place of files which were not downloaded.
// Every reader of a data file asks here. Thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainctl {

// The size limit of the pointer format. A larger file is not a pointer, whatever it begins with.
constexpr int64_t kMaxLfsPointerBytes = 1024;
// Bytes from the start of a file that IsLfsPointer has to see, or all bytes of a shorter file.
constexpr size_t kLfsPointerPrefixBytes = 64;

// Whether a file of `file_bytes` bytes that begins with `first_bytes` is a pointer. Pure.
bool IsLfsPointer(absl::string_view first_bytes, int64_t file_bytes);

// A clause to put after the file's name.
inline constexpr absl::string_view kIsLfsPointer =
    "is a Git LFS pointer, not the file itself; fetch the file with `git lfs pull` in its repository";

// BadDataError: `path` is a pointer, and how to get the file.
absl::Status LfsPointerError(absl::string_view path);

// LfsPointerError if `contents`, the whole file at `path`, are a pointer. Pure.
absl::Status RefuseLfsPointer(absl::string_view contents, absl::string_view path);

// LfsPointerError if the regular file at `path` is a pointer. Reads nothing of a file that is too large for
// one. OK if the file is missing or cannot be read: its reader reports that.
absl::Status RefuseLfsPointerFile(const std::string& path);

}  // namespace trainctl
