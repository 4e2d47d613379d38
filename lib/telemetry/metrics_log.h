// A run's two logs. metrics.jsonl contains only results that do not depend on the machine or the clock, so
// two undisturbed runs, or one that was killed and resumed, write identical bytes. timings.jsonl contains
// everything else. Only one process (rank 0) writes, with one thread per log.
//
//   TRAINCTL_ASSIGN_OR_RETURN(MetricsLog metrics, MetricsLog::Open(path, checkpoint_step));
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
  int64_t step = 0;  // number of completed optimizer steps, including this one
  // Mean loss over the global batch's loss tokens; nullopt (null in the log) if there are none.
  std::optional<double> loss = 0;
  std::optional<double> grad_norm = 0, lr = 0;  // nullopt (null in the log) before the first step
  int64_t tokens = 0;                           // tokens since the start of the run
  uint64_t batch_hash = 0;
  // Loss per evaluation set, on steps that evaluate. The loss is nullopt (null in the log) if no target of
  // the set counts.
  std::map<std::string, std::optional<double>> eval = {};
  // Changes that a resume made to the run before this step, for example "optimizer.lr is 1e-4 and was 1e-3".
  std::vector<std::string> changed = {};
  // Whether the update was skipped because the loss or the gradient norm was not finite.
  bool skipped = false;
  int64_t skipped_steps = 0;  // number of such steps since the start of the run; omitted if 0
};

// {"step":12,"seconds":0.5,"tokens_per_second":9000,"mfu":0.41,"phases":{"forward":0.2},"operators":{"linear":0.1},"memory_bytes":{"parameters":1024},"time":1700000000.125}
struct TimingRecord {
  int64_t step = 0;
  double seconds = 0;
  double tokens_per_second = 0;
  std::vector<std::pair<std::string, double>> phases;     // names and seconds, in the order of the step
  std::vector<std::pair<std::string, double>> operators;  // names and seconds in forward and backward
  std::vector<std::pair<std::string, int64_t>> memory_bytes;
  // End of the step, in seconds since the Unix epoch, written to the millisecond. Omitted if 0.
  double time_s = 0;
  // Model FLOPs utilization: the share of the devices' peak that the model's products used. Omitted if 0,
  // which means unknown.
  double mfu = 0;
};

std::string FormatFields(const StepRecord& record);  // omits the step
// Parses the output of FormatFields, enclosed in braces, except for `eval` and `changed`. The result has no
// step. A BadDataError begins with "<what>: ".
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
