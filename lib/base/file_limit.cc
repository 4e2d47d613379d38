#include "base/file_limit.h"

#include <sys/resource.h>

#include <algorithm>

namespace trainctl {
namespace {

constexpr rlim_t kMostFiles = 65536;

}  // namespace

void RaiseFileLimit() {
  rlimit files;
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  const rlim_t wanted = std::min(files.rlim_max, kMostFiles);
  if (files.rlim_cur >= wanted) return;
  files.rlim_cur = wanted;
  (void)::setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace trainctl
