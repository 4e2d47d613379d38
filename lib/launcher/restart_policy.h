// Whether a job that lost a worker starts again. Pure; thread safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace trainctl::launcher {

struct FailureFacts {
  int rank = -1;
  int64_t step = -1;             // where it failed; -1 before the first step
  int64_t checkpoint_step = -1;  // the newest committed checkpoint at that time
  std::optional<int> exit_code;  // of the failed worker; nullopt when a signal or silence ended it
};

struct RestartDecision {
  bool restart = false;
  std::string reason;
};

// `previous`: the last failure of the same launch, if any.
RestartDecision DecideRestart(const FailureFacts& failure, const std::optional<FailureFacts>& previous,
                              int64_t num_restarts, int64_t max_restarts, bool stop_requested);

}  // namespace trainctl::launcher
