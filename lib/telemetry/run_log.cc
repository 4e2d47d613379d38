#include "telemetry/run_log.h"

#include <utility>

#include "base/status.h"

namespace trainctl::telemetry {

absl::StatusOr<RunLog> RunLog::Open(const TensorboardOptions& events, bool with_events,
                                    int64_t last_step_to_keep) {
  TRAINCTL_ASSIGN_OR_RETURN(auto metrics, MetricsLog::Open(events.metrics_path, last_step_to_keep));
  TRAINCTL_ASSIGN_OR_RETURN(auto timings, TimingsLog::Open(events.timings_path, last_step_to_keep));
  const int64_t last_step = metrics.last_step() >= 0 ? metrics.last_step() : last_step_to_keep;
  RunLog log(std::move(metrics), std::move(timings), last_step);
  if (with_events) {
    TRAINCTL_ASSIGN_OR_RETURN(auto opened, TensorboardLog::Open(events));
    log.events_.emplace(std::move(opened));
  }
  return log;
}

void RunLog::NoteChanges(absl::Span<const RunChange> changes) {
  for (const RunChange& change : changes) {
    if (change.after_step >= last_step_) next_changes_.push_back(change.text);
  }
}

absl::Status RunLog::Append(StepRecord record, double time_s) {
  record.changed = std::exchange(next_changes_, {});
  TRAINCTL_RETURN_IF_ERROR(metrics_.Append(record));
  return events_ ? events_->Append(record, time_s) : absl::OkStatus();
}

absl::Status RunLog::Append(TimingRecord record) {
  if (peak_tokens_per_second_ > 0) record.mfu = record.tokens_per_second / peak_tokens_per_second_;
  TRAINCTL_RETURN_IF_ERROR(timings_.Append(record));
  return events_ ? events_->Append(record, record.time_s) : absl::OkStatus();
}

absl::Status RunLog::Sync() {
  TRAINCTL_RETURN_IF_ERROR(metrics_.Sync());
  return timings_.Sync();
}

}  // namespace trainctl::telemetry
