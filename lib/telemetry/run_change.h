// What a resume changed of its run. Plain data.
#pragma once

#include <cstdint>
#include <string>

namespace trainctl::telemetry {

struct RunChange {
  int64_t after_step = -1;  // of the checkpoint from which the run went on; -1: there was none
  std::string text;         // "optimizer.lr is 1e-4 and was 1e-3"
  bool operator==(const RunChange&) const = default;
};

}  // namespace trainctl::telemetry
