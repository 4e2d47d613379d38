#include "launcher/orphans.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "launcher/descent_mark.h"
#include "launcher/process_scan.h"

namespace trainctl::launcher {
namespace {

constexpr timespec kPause = {0, 5'000'000};

void NoteChild(pid_t pid, void* context) {
  if (ParentOf(pid) == ::getpid()) static_cast<std::set<pid_t>*>(context)->insert(pid);
}

struct Scan {
  const std::set<pid_t>* kept;
  int num_left = 0;
};

void Kill(pid_t pid, void* context) {
  Scan& scan = *static_cast<Scan*>(context);
  if (ParentOf(pid) != ::getpid() || scan.kept->contains(pid)) return;
  if (DescentMark::Own().exists() && !DescentMark::Own().IsOn(pid)) return;
  // A child stays this process's until it is reaped, so its pid cannot change hands here.
  ++scan.num_left;
  if (::waitpid(pid, nullptr, WNOHANG) == 0) ::kill(pid, SIGKILL);
}

}  // namespace

Orphans::Orphans() {
  ::prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (!DescentMark::Own().exists()) ForEachProcess(&NoteChild, &kept_);
}

Orphans::~Orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, was_subreaper_); }

absl::Status Orphans::KillAll(absl::Duration timeout) {
  const RealClock clock;
  const absl::Duration give_up = clock.Monotonic() + timeout;
  while (true) {
    Scan scan{&kept_};
    ForEachProcess(&Kill, &scan);
    if (scan.num_left == 0) return absl::OkStatus();
    if (clock.Monotonic() > give_up) {
      return EnvironmentError(absl::StrCat(
          scan.num_left,
          " of the job's processes were killed but have not exited; they hang in the kernel (see 'ps')"));
    }
    ::nanosleep(&kPause, nullptr);
  }
}

}  // namespace trainctl::launcher
