#include "apps/trainctl/early_stop.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "base/status.h"
#include "launcher/signal_pipe.h"

namespace trainctl::cli {
namespace {

constexpr char kWords[] =
    "\ntrainctl: stopped by a signal before anything was started; rerun the same command\n";
constexpr char kReport[] =
    "{\"schema\":\"trainctl.launch.v1\",\"run\":null,\"exit_code\":75,\"message\":\"stopped by a signal "
    "before anything was started\"}\n";

std::atomic<bool> g_has_begun{false};
std::atomic<bool> g_json{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void Say(int fd, const char* text) { (void)!::write(fd, text, std::strlen(text)); }

void OnSignal(int) {
  if (g_has_begun) return;
  Say(STDERR_FILENO, kWords);
  if (g_json) Say(STDOUT_FILENO, kReport);
  ::_exit(static_cast<int>(ExitCode::kStoppedResumable));
}

}  // namespace

void EndOnSignals(bool json) {
  g_json = json;
  sigset_t taken;
  ::sigemptyset(&taken);
  for (const int signal_number : launcher::kStopSignals) {
    ::sigaddset(&taken, signal_number);
    struct sigaction action = {};
    ::sigaction(signal_number, nullptr, &action);
    if (launcher::IsKeptOut(signal_number, action)) continue;
    action = {};
    action.sa_handler = &OnSignal;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal_number, &action, nullptr);
  }
  ::signal(SIGCHLD, SIG_DFL);  // ignored, as some start programs, the ends of children would be lost
  // Whoever started this may have held them back until now.
  ::sigprocmask(SIG_UNBLOCK, &taken, nullptr);
}

void BeginLaunch() { g_has_begun = true; }

void EndAsUsualOnSignals() {
  for (const int signal_number : launcher::kStopSignals) {
    struct sigaction action = {};
    ::sigaction(signal_number, nullptr, &action);
    if (action.sa_handler == &OnSignal) ::signal(signal_number, SIG_DFL);
  }
}

}  // namespace trainctl::cli
