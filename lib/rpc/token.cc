#include "rpc/token.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/secret_file.h"
#include "base/status.h"

namespace trainctl::rpc {

absl::StatusOr<std::string> MakeToken() { return RandomHex(32); }

absl::Status WritePass(const std::string& path, const Pass& pass) {
  return WriteSecretFile(path, absl::StrCat(pass.token, " ", pass.launch.job, " ", pass.launch.term));
}

absl::StatusOr<Pass> ReadPass(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return ErrnoError("read the job's token", path, errno);
  if ((info.st_mode & 077) != 0) {
    return EnvironmentError(absl::StrCat("the job's token ", path, " can be read by others; run 'chmod 600 ",
                                         path, "' and launch again"));
  }
  if (::access(path.c_str(), R_OK) != 0 && errno == EACCES) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the job's token ", path, " cannot be read: only the user who launched the run may do this"));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, 4096));
  const std::vector<std::string> parts = absl::StrSplit(text, ' ');
  Pass pass;
  if (parts.size() != 3 || parts[0].empty() || !absl::SimpleAtoi(parts[2], &pass.launch.term)) {
    return EnvironmentError(absl::StrCat("the job's token ", path, " is damaged; launch again"));
  }
  pass.token = parts[0];
  pass.launch.job = parts[1];
  return pass;
}

std::string WorkerTokenPath(const std::string& token_path, const rendezvous::Slot& slot) {
  return absl::StrCat(token_path, "-", slot.worker_id);
}

bool SameToken(absl::string_view a, absl::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return difference == 0;
}

}  // namespace trainctl::rpc
