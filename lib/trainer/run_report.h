// Compares a run's measured memory and time with the plan's prediction. Writes report.json, and formats the
// lines that rank 0 prints at the end. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/group.h"
#include "device/device.h"
#include "plan/plan.h"

namespace trainctl::trainer {

using MemoryByCategory = std::array<int64_t, schedule::kNumCategories>;  // bytes by category

// The memory of a rank's tensors at its peak, and the memory that libraries used internally at that time,
// which plans do not predict. Untagged memory counts as activations.
struct MeasuredMemory {
  MemoryByCategory at_peak = {};
  int64_t library_scratch_bytes = 0;
  int64_t peak_bytes() const { return std::accumulate(at_peak.begin(), at_peak.end(), int64_t{0}); }
};

// Collects the step times of one process. Ignores the first few steps, which are slower because memory pages
// are first touched and kernels are chosen.
class StepTimes {
 public:
  using Named = std::vector<std::pair<std::string, double>>;
  // Adds a step, with its seconds by phase and by operator.
  void Add(double step_seconds, const Named& phases, const Named& operators);
  // Returns the number of steps, without the ignored ones.
  int count() const { return static_cast<int>(steps_.size()); }
  double MedianSeconds() const;  // 0 if count() is 0
  double MeanSeconds() const;    // 0 if count() is 0
  // Returns the mean seconds per step of each phase and operator, by its name in timings.jsonl.
  std::map<std::string, double> MeanByName() const;

 private:
  int seen_ = 0;
  std::vector<double> steps_;
  std::map<std::string, double> sums_;
};

// Collective over `world`, which contains all ranks. Returns the memory of each rank.
absl::StatusOr<std::vector<MeasuredMemory>> GatherMemory(const device::Device& device, comm::Group& world);

// Writes the report to `path`, and returns the lines to print. `measured_memory` has an element per rank and
// must not be empty; `times` are those of this rank. `executed_hash` identifies the step that ran
// (schedule/step_hash.h), and is empty if none ran. Returns EnvironmentError if the file cannot be written.
absl::StatusOr<std::vector<std::string>> WriteReport(const std::string& path, const plan::Plan& plan,
                                                     const model::Architecture& spec,
                                                     const plan::PlannedStep& planned,
                                                     const std::string& executed_hash,
                                                     const std::vector<MeasuredMemory>& measured_memory,
                                                     const StepTimes& times);

}  // namespace trainctl::trainer
