// Collects a run's metrics for Prometheus, with their names, units, and help texts. All names begin with
// `trainctl_`, and all samples are labeled with the run's name. docs/guide/monitoring.md lists the metrics.
// Pure; thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "monitor/open_metrics.h"
#include "run/journal.h"
#include "telemetry/log_follower.h"

namespace trainctl::monitor {

struct RunMetrics {
  std::string run_name;  // name of the run folder
  std::string run_dir;
  int64_t total_steps = 0;
  // Predicted peak memory of the worker that needs the most.
  std::optional<int64_t> predicted_peak_bytes;
  run::RunState state;
  telemetry::RunNumbers numbers;
  // Measured peak memory so far, keyed by rank. For rank 0, the log may contain a higher value.
  std::map<int, int64_t> peak_bytes;
};

// Returns the metrics of `run`, omitting those that are not known yet.
std::vector<MetricFamily> FamiliesOf(const RunMetrics& run);

}  // namespace trainctl::monitor
