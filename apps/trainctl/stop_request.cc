#include "apps/trainctl/stop_request.h"

#include <signal.h>

namespace trainctl::cli {
namespace {

std::atomic<bool> g_is_asked{false};
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace

const std::atomic<bool>& StopOnSignals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { g_is_asked = true; };
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  return g_is_asked;
}

}  // namespace trainctl::cli
