#include "apps/trainctl/profile_option.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"

namespace trainctl::cli {

absl::StatusOr<std::string> ReadFileOfUser(const std::string& path) {
  if (!PathExists(path)) return UsageError(absl::StrCat("no such file: ", path));
  return ReadFile(path);
}

published::FileReader FilesNextTo(const std::string& path, std::vector<std::string>* read) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return [folder, read](const std::string& name) {
    const std::string file = (folder / name).string();
    if (read != nullptr) read->push_back(file);
    return ReadFileOfUser(file);
  };
}

absl::StatusOr<std::vector<published::PublishedRun>> ReadRuns(const std::string& path,
                                                              std::vector<std::string>* read) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFileOfUser(path));
  return published::ReadPublishedRuns(text, path, FilesNextTo(path, read));
}

absl::StatusOr<frameworks::HardwareProfile> ReadProfile(const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFileOfUser(path));
  return frameworks::ParseProfile(text, path);
}

}  // namespace trainctl::cli
