// Whether a job that lost a worker starts again. Pure; thread safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace trainctl::rendezvous {

struct FailureFacts {
  int rank = -1;                 // -1: no worker's failure
  int64_t step = -1;             // that it was in, counted from 1; -1: during start-up
  int64_t checkpoint_step = -1;  // the newest committed checkpoint at that time
  std::optional<int> exit_code;  // of the failed worker; nullopt when a signal or silence ended it
  std::string message = {};      // what happened
  std::string node = {};         // of the rank, in a job of several
};

// "rank 1 failed in step 58: killed by SIGSEGV (11)", "rank 9 on node2 failed during start-up: ...". Steps of
// messages count from 1.
std::string Describe(const FailureFacts& failure);

struct RestartDecision {
  bool restart = false;
  std::string reason;
  int64_t restarts_used = 0;  // this one included; for the next decision
};

// `previous`: the last failure of the same launch, if any. `restarts_used`: of its decision. What counts are
// restarts without a new checkpoint in between: a run of months has failures, and is worth each restart that
// brings it on. The same rank failing again in the same place for the same cause is not the machine's fault.
RestartDecision DecideRestart(const FailureFacts& failure, const std::optional<FailureFacts>& previous,
                              int64_t restarts_used, int64_t max_restarts, bool stop_requested);

}  // namespace trainctl::rendezvous
