#include "telemetry/run_log.h"

#include <utility>

#include "base/status.h"

namespace trainctl::telemetry {

absl::StatusOr<RunLog> RunLog::Open(const TensorboardOptions& events, bool with_events,
                                    int64_t last_step_to_keep, bool drops_last_metrics) {
  const int64_t metrics_to_keep = drops_last_metrics ? last_step_to_keep - 1 : last_step_to_keep;
  TRAINCTL_ASSIGN_OR_RETURN(auto metrics, MetricsLog::Open(events.metrics_path, metrics_to_keep));
  TRAINCTL_ASSIGN_OR_RETURN(auto timings, TimingsLog::Open(events.timings_path, last_step_to_keep));
  const int64_t last_step = metrics.last_step() >= 0 ? metrics.last_step() : metrics_to_keep;
  RunLog log(events, std::move(metrics), std::move(timings), last_step);
  if (with_events) TRAINCTL_RETURN_IF_ERROR(log.OpenEvents());
  return log;
}

absl::Status RunLog::OpenEvents() {
  TRAINCTL_ASSIGN_OR_RETURN(auto opened, TensorboardLog::Open(options_));
  events_.emplace(std::move(opened));
  return absl::OkStatus();
}

// Readers stop at a partial record, so the file is not appended to after an error.
template <typename Record>
void RunLog::AppendEvents(const Record& record, double time_s) {
  const bool is_synced = is_synced_->exchange(false);
  if (!events_trouble_.ok() && is_synced) {
    events_trouble_ = OpenEvents();  // with what was just appended to the log
    return;
  }
  if (!events_) return;
  events_trouble_ = events_->Append(record, time_s);
  if (!events_trouble_.ok()) events_.reset();
}

void RunLog::NoteChanges(absl::Span<const RunChange> changes) {
  for (const RunChange& change : changes) {
    if (change.after_step >= last_step_) next_changes_.push_back(change.text);
  }
}

absl::Status RunLog::Append(StepRecord record, double time_s) {
  record.changed = std::exchange(next_changes_, {});
  TRAINCTL_RETURN_IF_ERROR(metrics_.Append(record));
  AppendEvents(record, time_s);
  return absl::OkStatus();
}

absl::Status RunLog::Append(TimingRecord record) {
  if (peak_tokens_per_second_ > 0) record.mfu = record.tokens_per_second / peak_tokens_per_second_;
  TRAINCTL_RETURN_IF_ERROR(timings_.Append(record));
  AppendEvents(record, record.time_s);
  return absl::OkStatus();
}

absl::Status RunLog::Sync() {
  TRAINCTL_RETURN_IF_ERROR(metrics_.Sync());
  TRAINCTL_RETURN_IF_ERROR(timings_.Sync());
  *is_synced_ = true;
  return absl::OkStatus();
}

absl::Status RunLog::trouble() const {
  if (!metrics_.trouble().ok()) return metrics_.trouble();
  return timings_.trouble().ok() ? events_trouble_ : timings_.trouble();
}

}  // namespace trainctl::telemetry
