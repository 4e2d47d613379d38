#include "launcher/descent_mark.h"

#include <unistd.h>

namespace trainctl::launcher {
namespace {

// Microseconds of 146,000 years.
constexpr rlim_t kLeastMark = rlim_t{1} << 62;
// A process that has a mark gives the next lower one to its keepers' children. Marks of unrelated processes
// are farther apart than this.
constexpr rlim_t kMaxNesting = 1024;

}  // namespace

DescentMark::DescentMark() {
  rlimit limit;
  if (::getrlimit(RLIMIT_RTTIME, &limit) != 0) return;
  if (limit.rlim_max == RLIM_INFINITY) {
    mark_ = kLeastMark + static_cast<rlim_t>(::getpid()) * kMaxNesting;
  } else if (limit.rlim_max > kLeastMark) {
    mark_ = limit.rlim_max - 1;
  }
}

const DescentMark& DescentMark::Own() {
  static const DescentMark mark;
  return mark;
}

void DescentMark::Put() const {
  if (mark_ == 0) return;
  const rlimit limit = {mark_, mark_};
  (void)::setrlimit(RLIMIT_RTTIME, &limit);
}

bool DescentMark::IsOn(pid_t pid) const {
  rlimit limit;
  return ::prlimit(pid, RLIMIT_RTTIME, nullptr, &limit) == 0 && limit.rlim_max <= mark_ &&
         limit.rlim_max > mark_ - kMaxNesting / 2;
}

}  // namespace trainctl::launcher
