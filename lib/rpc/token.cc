#include "rpc/token.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/secret_file.h"
#include "base/status.h"

namespace trainctl::rpc {

absl::StatusOr<std::string> MakeToken() { return RandomHex(32); }

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return ErrnoError("read the job's token", path, errno);
  if ((info.st_mode & 077) != 0) {
    return EnvironmentError(absl::StrCat("the job's token ", path, " can be read by others; run 'chmod 600 ",
                                         path, "' and launch again"));
  }
  TRAINCTL_ASSIGN_OR_RETURN(std::string token, ReadFile(path, 4096));
  if (token.empty()) return EnvironmentError(absl::StrCat("the job's token ", path, " is empty"));
  return token;
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
