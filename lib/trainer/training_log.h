// Logs and prints the steps of a run. Rank 0 writes a line per step in metrics.jsonl and timings.jsonl,
// writes events for TensorBoard, and prints progress lines. Other ranks only collect times.
//
// If a step is evaluated, it is saved before its line is complete. If the run ends in between, the checkpoint
// contains the record (RunCounters::unlogged_json). The resumed run then evaluates the step and appends its
// line.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "device/device.h"
#include "plan/plan.h"
#include "telemetry/run_change.h"
#include "telemetry/run_log.h"
#include "trainer/run_report.h"
#include "trainer/run_worker.h"

namespace trainctl::trainer {

// Loss per evaluation set, as in telemetry::StepRecord::eval.
using EvalLosses = std::map<std::string, std::optional<double>>;

// Not thread-safe, except for Sync.
class TrainingLog {
 public:
  // Borrows all arguments, which must outlive it.
  TrainingLog(const WorkerDeps& deps, const device::Device& device, const plan::Plan& plan);

  // Opens the logs and keeps their lines up to `saved_step`, the step of the restored checkpoint or -1. Call
  // this, and the methods below unless their comments mention other ranks, only on rank 0.
  absl::Status Open(int64_t saved_step, const std::string& unlogged_json);
  // Makes the logs durable. The thread that saves may call this at any time.
  absl::Status Sync() { return log_->Sync(); }

  // Whether the log lacks the line of the restored step. Always false on other ranks.
  bool lacks_line() const { return unlogged_.has_value(); }
  // Appends the missing line. `losses` is nullopt if the evaluation was stopped.
  absl::Status AppendMissingLine(const std::optional<EvalLosses>& losses);
  // Appends the losses of the initial weights, before the first step.
  absl::Status AppendInitialLosses(const EvalLosses& losses);

  // Logs the time of a step, in seconds. Call this before the step is evaluated. On other ranks, only adds
  // the time to times().
  absl::Status AppendTiming(int64_t step, double step_seconds, const StepTimes::Named& phases,
                            const StepTimes::Named& operators);
  // Appends a step's line to metrics.jsonl and prints it. Unless `always` is set, may skip the line
  // (metrics.every_steps), and prints at most one line per second. Does nothing on other ranks.
  absl::Status AppendStep(const telemetry::StepRecord& record, bool always);

  const StepTimes& times() const { return times_; }  // also valid on other ranks

 private:
  void SortChanges(int64_t saved_step);
  void PrintStep(const telemetry::StepRecord& record) const;
  void WarnOfTrouble();
  double NowSeconds() const;

  const WorkerDeps& deps_;
  const recipe::Recipe& recipe_;
  const device::Device& device_;
  const plan::Plan& plan_;
  std::optional<telemetry::RunLog> log_;
  std::optional<telemetry::StepRecord> unlogged_;    // record of the missing line
  std::vector<telemetry::RunChange> later_changes_;  // changes after the step of the missing line
  bool has_trouble_ = false;
  absl::Duration last_line_ = -absl::InfiniteDuration();
  double tokens_per_second_ = 0;  // speed in the last step
  StepTimes times_;
};

}  // namespace trainctl::trainer
