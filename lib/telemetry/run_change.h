// A change that a resume made to a run. Plain data.
#pragma once

#include <cstdint>
#include <string>

namespace trainctl::telemetry {

struct RunChange {
  // Step of the checkpoint from which the run resumed; -1 if there was none.
  int64_t after_step = -1;
  // For example, "optimizer.lr is 1e-4 and was 1e-3".
  std::string text;
  bool operator==(const RunChange&) const = default;
};

}  // namespace trainctl::telemetry
