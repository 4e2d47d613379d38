// What was predicted of a run against what was measured: report.json and the last lines of rank 0.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "plan/plan.h"

namespace trainctl::trainer {

using MemoryByCategory = std::array<int64_t, schedule::kNumCategories>;  // bytes

// Of the step's tensors at the peak of a rank, and beside them what libraries took for themselves then, which
// no plan knows.
struct MeasuredMemory {
  MemoryByCategory at_peak = {};
  int64_t library_scratch_bytes = 0;
  int64_t peak_bytes() const { return std::accumulate(at_peak.begin(), at_peak.end(), int64_t{0}); }
};

// The steps of one process, without the first ones, in which pages are touched and kernels chosen.
class StepTimes {
 public:
  using Named = std::vector<std::pair<std::string, double>>;
  void Add(double step_seconds, const Named& phases, const Named& operators);
  int count() const { return static_cast<int>(steps_.size()); }
  double MedianSeconds() const;  // 0: there were none
  double MeanSeconds() const;    // 0: there were none
  // Mean seconds a step, by the names of timings.jsonl.
  std::map<std::string, double> MeanByName() const;

 private:
  int seen_ = 0;
  std::vector<double> steps_;
  std::map<std::string, double> sums_;
};

// Writes the report to `path` and returns the lines for people. `measured_memory` is of each rank, `times` of
// this one; `executed_hash` is empty where no step ran.
absl::StatusOr<std::vector<std::string>> WriteReport(const std::string& path, const plan::Plan& plan,
                                                     const model::ModelSpec& spec,
                                                     const plan::PlannedStep& planned,
                                                     const std::string& executed_hash,
                                                     const std::vector<MeasuredMemory>& measured_memory,
                                                     const StepTimes& times);

}  // namespace trainctl::trainer
