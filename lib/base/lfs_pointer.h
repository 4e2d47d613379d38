// Recognizes Git LFS pointers, the small text files that a clone contains in place of files that were not
// downloaded. All readers of data files use these functions. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace trainctl {

// The maximum size of a pointer. A larger file is not a pointer, regardless of its contents.
constexpr int64_t kMaxLfsPointerBytes = 1024;
// The number of leading bytes that IsLfsPointer needs. If the file is shorter, pass all of it.
constexpr size_t kLfsPointerPrefixBytes = 64;

// Whether a file with `file_bytes` bytes that begins with `first_bytes` is a pointer. Pure.
bool IsLfsPointer(absl::string_view first_bytes, int64_t file_bytes);

// A clause to append to the file's name in an error message.
inline constexpr absl::string_view kIsLfsPointer =
    "is a Git LFS pointer, not the file itself; fetch the file with `git lfs pull` in its repository";

// Returns a BadDataError that says that `path` is a pointer and how to get the file itself.
absl::Status LfsPointerError(absl::string_view path);

// Returns LfsPointerError if `contents`, the whole file at `path`, is a pointer. Pure.
absl::Status RefuseLfsPointer(absl::string_view contents, absl::string_view path);

// Returns LfsPointerError if the regular file at `path` is a pointer. Does not read files that are too large
// to be one. Returns OK if the file is missing or cannot be read, since its reader will report that.
absl::Status RefuseLfsPointerFile(const std::string& path);

}  // namespace trainctl
