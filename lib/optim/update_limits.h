// Limits on the number of consecutive steps without an update.
#pragma once

#include <cstdint>

namespace trainctl::optim {

// With train.on_nonfinite = "skip", a run ends (exit code 7) when it has skipped this many updates in a row.
inline constexpr int64_t kMostSkippedInARow = 10;
// A run ends (exit code 6) after this many steps in a row in which no target counts in the loss.
inline constexpr int64_t kMostStepsWithoutTargets = 10;

}  // namespace trainctl::optim
