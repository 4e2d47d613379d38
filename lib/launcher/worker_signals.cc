#include "launcher/worker_signals.h"

#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

namespace trainctl::launcher {
namespace {

void OnTerminate(int signal_number, siginfo_t* info, void*) {
  if (info->si_pid != ::getppid()) return;
  ::signal(signal_number, SIG_DFL);
  ::raise(signal_number);  // blocked until this returns
}

// Only calls that are safe here: backtrace has loaded what it needs before.
void OnShowStack(int) {
  (void)!::write(STDERR_FILENO, kStackTitle, sizeof(kStackTitle) - 1);
  (void)!::write(STDERR_FILENO, "\n", 1);
  void* frames[64];
  ::backtrace_symbols_fd(frames, ::backtrace(frames, 64), STDERR_FILENO);
}

}  // namespace

int ShowStackSignal() { return SIGRTMIN + 6; }

std::vector<int> SignalsThatWorkersIgnore() { return {SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE, SIGXFSZ}; }

std::vector<int> SignalsThatWorkersBlock() { return {SIGTERM}; }

void LeaveStoppingToLauncher() {
  for (const int signal_number : SignalsThatWorkersIgnore()) ::signal(signal_number, SIG_IGN);
  struct sigaction action = {};
  action.sa_sigaction = &OnTerminate;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGTERM, &action, nullptr);
  void* frame;
  ::backtrace(&frame, 1);
  action = {};
  action.sa_handler = &OnShowStack;
  action.sa_flags = SA_RESTART;
  ::sigaction(ShowStackSignal(), &action, nullptr);
  sigset_t blocked;
  ::sigemptyset(&blocked);
  for (const int signal_number : SignalsThatWorkersBlock()) ::sigaddset(&blocked, signal_number);
  ::sigprocmask(SIG_UNBLOCK, &blocked, nullptr);
}

}  // namespace trainctl::launcher
