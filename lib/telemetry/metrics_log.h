// The two logs of a run. metrics.jsonl holds what the training computed and nothing that depends on
// the machine or the clock: two undisturbed runs, or one that was killed and resumed, give the same
// bytes. timings.jsonl holds the rest. One process (rank 0) writes; one thread per log.
//
//   TRAINCTL_ASSIGN_OR_RETURN(MetricsLog metrics, MetricsLog::Open(path, checkpoint_step));  // -1: anew
//   TRAINCTL_RETURN_IF_ERROR(metrics.Append({.step = 12, .loss = loss, ...}));
//   TRAINCTL_RETURN_IF_ERROR(metrics.Sync());  // before a checkpoint is committed
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "telemetry/step_log.h"

namespace trainctl::telemetry {

// {"step":12,"loss":2.5,"grad_norm":1.25,"lr":3e-04,"tokens":98304,"batch_hash":"00f1...","eval":{"held-out":2.25},"changed":[...]}
struct StepRecord {
  int64_t step = 0;  // optimizer steps done, this one included
  // Mean over the global number of loss tokens; empty (null in the log) if there were none.
  std::optional<double> loss = 0;
  double grad_norm = 0;
  double lr = 0;
  int64_t tokens = 0;  // since the start of the run
  uint64_t batch_hash = 0;
  // Loss per evaluation set, on steps that evaluate; empty (null) if no target of the set counts.
  std::map<std::string, std::optional<double>> eval = {};
  // What was changed of the run before it, by resuming it: "optimizer.lr is 1e-4 and was 1e-3".
  std::vector<std::string> changed = {};
  bool skipped = false;  // the update was left out because the loss or the gradient norm was not finite
};

// {"step":12,"seconds":0.5,"tokens_per_second":9000,"mfu":0.41,"phases":{"forward":0.2},"operators":{"linear":0.1},"memory_bytes":{"parameters":1024},"time":1700000000.125}
struct TimingRecord {
  int64_t step = 0;
  double seconds = 0;
  double tokens_per_second = 0;
  std::vector<std::pair<std::string, double>> phases;     // name, seconds; in the order of the step
  std::vector<std::pair<std::string, double>> operators;  // name, seconds within forward and backward
  std::vector<std::pair<std::string, int64_t>> memory_bytes;
  double time_s = 0;  // since 1970, at the step's end; to a millisecond; 0: left out
  double mfu = 0;     // share of the devices' peak that the model needed; 0: unknown, left out
};

std::string FormatFields(const StepRecord& record);  // without the step
// The record of FormatFields, put in braces; without `eval`, `changed` and the step. BadDataError "<what>:
// ...".
absl::StatusOr<StepRecord> ParseStepRecord(absl::string_view json, absl::string_view what);
std::string FormatFields(const TimingRecord& record);

template <typename Record>
class RecordLog {
 public:
  // See StepLog::Open.
  static absl::StatusOr<RecordLog> Open(const std::string& path, int64_t last_step_to_keep) {
    absl::StatusOr<StepLog> log = StepLog::Open(path, last_step_to_keep);
    if (!log.ok()) return log.status();
    return RecordLog(*std::move(log));
  }
  absl::Status Append(const Record& record) { return log_.Append(record.step, FormatFields(record)); }
  absl::Status trouble() const { return log_.trouble(); }
  absl::Status Sync() { return log_.Sync(); }
  int64_t last_step() const { return log_.last_step(); }

 private:
  explicit RecordLog(StepLog log) : log_(std::move(log)) {}
  StepLog log_;
};

using MetricsLog = RecordLog<StepRecord>;
using TimingsLog = RecordLog<TimingRecord>;

}  // namespace trainctl::telemetry
