#include "launcher/init_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/signal_pipe.h"

namespace trainctl::launcher {
namespace {

constexpr pid_t kInit = 1;

// Until the child has ended.
[[noreturn]] void ReapAndForward(pid_t child, const sigset_t& waited_for) {
  while (true) {
    siginfo_t info;
    const int signal_number = ::sigwaitinfo(&waited_for, &info);
    if (signal_number < 0) continue;
    // The kernel gives what is typed at a terminal to the child as well.
    if (signal_number != SIGCHLD && info.si_code != SI_KERNEL) ::kill(child, signal_number);
    int status = 0;
    for (pid_t ended; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (ended != child) continue;
      ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
  }
}

}  // namespace

void LeaveInitProcess() {
  if (::getpid() != kInit) return;
  sigset_t waited_for, before;
  ::sigemptyset(&waited_for);
  ::sigaddset(&waited_for, SIGCHLD);
  for (const int signal_number : kStopSignals) ::sigaddset(&waited_for, signal_number);
  ::sigprocmask(SIG_BLOCK, &waited_for, &before);
  ::signal(SIGCHLD, SIG_DFL);  // ignored, the ends of children would be lost
  const pid_t child = ::fork();
  if (child > 0) ReapAndForward(child, waited_for);
  // Also where there can be no other process.
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace trainctl::launcher
