#include "run/grant.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/shell_quote.h"
#include "base/status.h"

namespace trainctl::run {
namespace {

// More launches than a run has, and far from where numbers end.
constexpr int64_t kMostTerms = 1'000'000'000;

std::string FolderOf(const std::string& run_path) { return run_path + "/terms"; }

std::string PathOf(const std::string& run_path, int64_t term) {
  return absl::StrFormat("%s/%08d", FolderOf(run_path), term);
}

// 0: there is none. The folder is listed anew each time: a network file system answers from what it
// remembers where one name is looked up, and asks its server where a folder is opened.
absl::StatusOr<int64_t> HighestTerm(const std::string& run_path) {
  int64_t highest = 0;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(FolderOf(run_path), error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    int64_t term = 0;
    if (absl::c_all_of(name, [](unsigned char c) { return absl::ascii_isdigit(c); }) &&
        absl::SimpleAtoi(name, &term)) {
      if (term > kMostTerms) {
        return BadDataError(
            absl::StrCat(it->path().string(), ": there is no launch with this number; remove the file"));
      }
      highest = std::max(highest, term);
    }
  }
  if (!error || error == std::errc::no_such_file_or_directory) return highest;
  return ErrnoError("list", FolderOf(run_path), error.value());
}

// What is in force. A generation that cannot be read, or is empty, has not begun.
absl::StatusOr<Grant> Highest(const std::string& run_path) {
  Grant highest;
  TRAINCTL_ASSIGN_OR_RETURN(highest.term, HighestTerm(run_path));
  if (highest.term == 0) return highest;
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(PathOf(run_path, highest.term)));
  if (!absl::SimpleAtoi(text, &highest.generation)) highest.generation = 0;
  return highest;
}

}  // namespace

std::string Grant::Tag() const { return absl::StrCat(term, "-", generation); }

absl::StatusOr<int64_t> ClaimTerm(const std::string& run_path) {
  TRAINCTL_RETURN_IF_ERROR(MakeDirs(FolderOf(run_path)));
  TRAINCTL_ASSIGN_OR_RETURN(int64_t term, HighestTerm(run_path));
  while (true) {
    const std::string path = PathOf(run_path, ++term);
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 && errno == EEXIST) continue;  // another launch was faster
    if (fd < 0) return ErrnoError("create", path, errno);
    ::close(fd);
    TRAINCTL_RETURN_IF_ERROR(SyncDir(FolderOf(run_path)));
    TRAINCTL_RETURN_IF_ERROR(SyncDir(run_path));
    return term;
  }
}

absl::Status RecordGrant(const std::string& run_path, const Grant& grant) {
  TRAINCTL_RETURN_IF_ERROR(CheckGrant(run_path, grant));
  return WriteFileAtomic(PathOf(run_path, grant.term), absl::StrCat(grant.generation, "\n"));
}

absl::Status CheckGrant(const std::string& run_path, const Grant& grant) {
  const absl::StatusOr<Grant> highest = Highest(run_path);
  if (!highest.ok() || grant >= *highest) return absl::OkStatus();
  const std::string who =
      highest->term > grant.term
          ? absl::StrCat("launch ", highest->term, " has taken over ", run_path, " from launch ", grant.term)
          : absl::StrCat("the workers of ", run_path, " have restarted");
  return EnvironmentError(absl::StrCat(who, ": generation ", grant.generation, " of launch ", grant.term,
                                       " may no longer write there. See: trainctl status ",
                                       ShellQuote(run_path)));
}

}  // namespace trainctl::run
