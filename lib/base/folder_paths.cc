#include "base/folder_paths.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/files.h"
#include "base/status.h"

namespace trainctl {

absl::Status CheckWorkingFolder() {
  std::error_code error;
  (void)std::filesystem::current_path(error);
  if (!error) return absl::OkStatus();
  if (error == std::errc::no_such_file_or_directory) {
    return EnvironmentError("the working folder was removed; change to a folder that exists (cd)");
  }
  return ErrnoError("find", "the working folder", error.value());
}

std::string AbsolutePath(absl::string_view path, absl::string_view folder) {
  const std::filesystem::path full = std::filesystem::path(std::string(folder)) / std::string(path);
  std::string normal = full.lexically_normal().string();
  while (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

absl::StatusOr<std::string> AbsolutePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path full = std::filesystem::absolute(path, error);
  if (!error) return AbsolutePath(full.string(), "/");
  TRAINCTL_RETURN_IF_ERROR(CheckWorkingFolder());
  return ErrnoError("find the folder of", path, error.value());
}

absl::StatusOr<std::string> NearestFolder(const std::string& folder) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string full, AbsolutePath(folder));
  std::filesystem::path nearest = full;
  std::error_code error;
  while (!std::filesystem::exists(nearest, error) && nearest.has_relative_path())
    nearest = nearest.parent_path();
  const std::string path = nearest.string();
  if (!std::filesystem::is_directory(nearest, error)) return ErrnoError("write below", path, ENOTDIR);
  if (::access(path.c_str(), W_OK | X_OK) != 0) return ErrnoError("write below", path, errno);
  return path;
}

}  // namespace trainctl
