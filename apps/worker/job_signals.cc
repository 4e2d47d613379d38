#include "apps/worker/job_signals.h"

#include <signal.h>
#include <unistd.h>

#include <initializer_list>

namespace trainctl {
namespace {

void OnTerminate(int signal_number, siginfo_t* info, void*) {
  if (info->si_pid != ::getppid()) return;
  ::signal(signal_number, SIG_DFL);
  ::raise(signal_number);  // blocked until this returns
}

}  // namespace

void LeaveStoppingToLauncher() {
  for (const int signal_number : {SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) ::signal(signal_number, SIG_IGN);
  struct sigaction action = {};
  action.sa_sigaction = &OnTerminate;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGTERM, &action, nullptr);
}

}  // namespace trainctl
