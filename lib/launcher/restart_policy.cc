#include "launcher/restart_policy.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::launcher {
namespace {

// Steps are reported as they begin, so two deaths at the same place may be seen one step apart.
constexpr int64_t kSameStep = 1;

// Failures that the same program on the same input repeats.
bool IsIncurable(int exit_code) {
  switch (static_cast<ExitCode>(exit_code)) {
    case ExitCode::kUsage:
    case ExitCode::kInfeasible:
    case ExitCode::kEnvironment:
    case ExitCode::kBadData:
    case ExitCode::kCheckFailed:
      return true;
    default:
      return false;
  }
}

std::string Place(int64_t step) {
  return step < 0 ? std::string("during start-up") : absl::StrCat("at step ", step);
}

}  // namespace

RestartDecision DecideRestart(const FailureFacts& failure, const std::optional<FailureFacts>& previous,
                              int64_t num_restarts, int64_t max_restarts, bool stop_requested) {
  if (stop_requested) return {false, "not restarted: a stop was requested"};
  if (failure.exit_code && IsIncurable(*failure.exit_code)) {
    return {false, absl::StrCat("not restarted: exit code ", *failure.exit_code,
                                " means that the same start would fail again")};
  }
  const bool same_place = previous && std::llabs(failure.step - previous->step) <= kSameStep &&
                          (failure.step < 0) == (previous->step < 0);
  if (same_place) {
    return {false,
            absl::StrCat("not restarted: it failed again ", Place(failure.step),
                         " and made no progress since the last failure; the cause is in the program or its "
                         "input, not in the machine")};
  }
  if (num_restarts >= max_restarts) {
    return {false, max_restarts == 0
                       ? std::string("not restarted: launch.max_restarts is 0")
                       : absl::StrCat("not restarted: launch.max_restarts = ", max_restarts, " is used up")};
  }
  return {true, absl::StrCat("restarting all workers (", num_restarts + 1, " of ", max_restarts, ") from ",
                             failure.checkpoint_step >= 0
                                 ? absl::StrCat("the checkpoint of step ", failure.checkpoint_step)
                                 : std::string("the beginning: there is no checkpoint yet"))};
}

}  // namespace trainctl::launcher
