#include "rendezvous/restart_policy.h"

#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::rendezvous {
namespace {

// Steps are reported as they begin, so two deaths at the same place may be seen one step apart.
constexpr int64_t kSameStep = 1;

// The dynamic linker ends a program with this code if it cannot load a library.
constexpr int kNotLoaded = 127;

// Process numbers, times and addresses differ each time that the same thing happens.
std::string MaskNumbers(absl::string_view text) {
  std::string masked;
  for (size_t i = 0; i < text.size();) {
    if (!absl::ascii_isdigit(text[i])) {
      masked.push_back(text[i++]);
      continue;
    }
    const bool is_hex = text.substr(i, 2) == "0x";
    if (is_hex) i += 2;
    while (i < text.size() &&
           (is_hex ? absl::ascii_isxdigit(text[i]) : absl::ascii_isdigit(text[i]) || text[i] == '.')) {
      ++i;
    }
    masked.push_back('#');
  }
  return masked;
}

bool SamePlace(const FailureFacts& a, const FailureFacts& b) {
  return std::llabs(a.step - b.step) <= kSameStep && (a.step < 0) == (b.step < 0);
}

bool SameCause(const FailureFacts& a, const FailureFacts& b) {
  // Who has told of its failure may be ended before it exits by itself.
  const bool other_code = a.exit_code && b.exit_code && *a.exit_code != *b.exit_code;
  return !other_code && MaskNumbers(a.message) == MaskNumbers(b.message);
}

}  // namespace

std::optional<ExitCode> IncurableCode(int exit_code) {
  if (exit_code == kNotLoaded) return ExitCode::kEnvironment;
  switch (static_cast<ExitCode>(exit_code)) {
    case ExitCode::kUsage:
    case ExitCode::kInfeasible:
    case ExitCode::kEnvironment:
    case ExitCode::kBadData:
    case ExitCode::kCheckFailed:
      return static_cast<ExitCode>(exit_code);
    default:
      return std::nullopt;
  }
}

std::string Describe(const FailureFacts& failure) {
  if (failure.rank < 0) return failure.message;
  return absl::StrCat(
      "rank ", failure.rank, failure.node.empty() ? "" : absl::StrCat(" on ", failure.node), " failed ",
      failure.step < 0 ? std::string("during start-up") : absl::StrCat("in step ", failure.step), ": ",
      failure.message);
}

RestartDecision DecideRestart(const FailureFacts& failure, const std::optional<FailureFacts>& previous,
                              int64_t restarts_used, int64_t max_restarts, bool stop_requested) {
  if (stop_requested) return {false, "not restarted: a stop was requested"};
  if (failure.exit_code && IncurableCode(*failure.exit_code)) {
    return {false, absl::StrCat("not restarted: exit code ", *failure.exit_code, " means that ",
                                *failure.exit_code == kNotLoaded
                                    ? "the worker program or one of its libraries could not be loaded"
                                    : "the same start would fail again")};
  }
  if (previous && failure.checkpoint_step > previous->checkpoint_step) {
    restarts_used = 0;
  } else if (previous && failure.rank == previous->rank && SamePlace(failure, *previous) &&
             SameCause(failure, *previous)) {
    return {
        false,
        "not restarted: the same rank failed in the same place for the same cause as the last time, without "
        "a new checkpoint in between; the cause is in the program or its input, not in the machine"};
  }
  if (restarts_used >= max_restarts) {
    return {false, max_restarts == 0 ? std::string("not restarted: launch.max_restarts is 0")
                                     : absl::StrCat("not restarted: launch.max_restarts = ", max_restarts,
                                                    " is used up without a new checkpoint")};
  }
  return {true,
          absl::StrCat("restarting all workers (", restarts_used + 1, " of ", max_restarts, ") from ",
                       failure.checkpoint_step >= 0
                           ? absl::StrCat("the checkpoint of step ", failure.checkpoint_step)
                           : std::string("the beginning: there is no checkpoint yet")),
          restarts_used + 1};
}

}  // namespace trainctl::rendezvous
