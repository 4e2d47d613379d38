// Measures what this machine does with training steps: short real jobs of several shapes, in each type and
// under each load that the machine is worth, from whose timings the seconds per unit of work are found.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "cluster/host.h"
#include "simulate/machine.h"

namespace trainctl::cli {

// How many workers compute at once, and how.
struct Load {
  DType dtype = DType::kF32;
  int64_t workers = 1;
  int64_t threads = 1;           // of each worker
  std::string ToString() const;  // "bf16, 2 workers x 1 thread"
};

// One worker with all cores, one with a single core, a worker a core; in bf16 too where it is native.
std::vector<Load> UsualLoads(const cluster::Host& host);

struct MachineMeasurement {
  simulate::MachineProfile profile;
  struct Fit {
    std::string load;        // "bf16, 2 workers x 1 thread"
    double mean_error = 0;   // of the probes' step times, absolute, as a share
    double worst_error = 0;  // signed
    int num_probes = 0;
  };
  std::vector<Fit> fits;  // one for each entry of profile.measured
};

inline constexpr int64_t kUsualRounds = 3;

// All loads `rounds` times one after another: with three a machine that is slow for half a minute does not
// make one load look slow. A minute or two a load. `progress` is told what runs now. EnvironmentError: a
// probe could not be run.
absl::StatusOr<MachineMeasurement> MeasureMachine(const cluster::Host& host, const std::vector<Load>& loads,
                                                  int64_t rounds,
                                                  const std::function<void(const std::string&)>& progress);

}  // namespace trainctl::cli
