#include "base/temporary_folder.h"

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/folder_paths.h"
#include "base/status.h"

namespace trainctl {

std::vector<std::string> TemporaryFolders() {
  const char* const chosen = std::getenv("TMPDIR");
  std::vector<std::string> folders;
  if (chosen != nullptr && *chosen != '\0') {
    if (const absl::StatusOr<std::string> full = AbsolutePath(std::string(chosen)); full.ok()) {
      folders.push_back(*full);
    }
  }
  if (folders.empty() || folders.front() != "/tmp") folders.emplace_back("/tmp");
  return folders;
}

absl::StatusOr<std::string> MakeTemporaryFolder(const std::vector<std::string>& parents,
                                                absl::string_view name, size_t most_bytes) {
  std::vector<std::string> failures;
  for (const std::string& parent : parents) {
    std::string folder = absl::StrCat(parent, "/", name);
    if (folder.size() > most_bytes) {
      failures.push_back(absl::StrCat(parent, ": its path is too long (", folder.size(), " of at most ",
                                      most_bytes, " bytes)"));
      continue;
    }
    if (::mkdtemp(folder.data()) != nullptr) return folder;  // mode 0700
    failures.push_back(absl::StrCat(parent, ": ", std::strerror(errno)));
  }
  return EnvironmentError(absl::StrCat("cannot create a folder (", absl::StrJoin(failures, "; "), ")"));
}

}  // namespace trainctl
