// Decides whether a job restarts after losing a worker. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace trainctl::rendezvous {

struct FailureFacts {
  // The failed rank; -1 if no worker failed.
  int rank = -1;
  // Step in which it failed, counted from 1; -1 during start-up.
  int64_t step = -1;
  // Step of the newest committed checkpoint at that time; -1 if there is none.
  int64_t checkpoint_step = -1;
  // The failed worker's exit code; nullopt if a signal terminated it or it went silent.
  std::optional<int> exit_code;
  // Description of the failure.
  std::string message = {};
  // The rank's node; empty unless the job runs on several nodes.
  std::string node = {};
};

// Returns the launch's exit code for a worker's exit code if the same program with the same input would fail
// again: the worker's own code, or kEnvironment for 127, which means that the worker or one of its libraries
// could not be loaded. Returns nullopt for other codes.
std::optional<ExitCode> IncurableCode(int exit_code);

// Describes a failure, for example "rank 1 failed in step 58: killed by SIGSEGV (11)" or "rank 9 on node2
// failed during start-up: ...".
std::string Describe(const FailureFacts& failure);

struct RestartDecision {
  bool restart = false;
  std::string reason;
  int64_t restarts_used = 0;  // count including this restart; pass it to the next decision
};

// Decides whether to restart after `failure`. `previous` is the previous failure of the same launch, if any,
// and `restarts_used` is the count that its decision returned. Only restarts since the last new checkpoint
// count toward `max_restarts`, because a run that lasts months is bound to fail sometimes and any restart
// that leads to progress is worthwhile. If the same rank fails again in the same place for the same cause,
// the job is not restarted, because the machine is then unlikely to be at fault.
RestartDecision DecideRestart(const FailureFacts& failure, const std::optional<FailureFacts>& previous,
                              int64_t restarts_used, int64_t max_restarts, bool stop_requested);

}  // namespace trainctl::rendezvous
