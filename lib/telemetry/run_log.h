// All that a run writes of its steps, together: metrics.jsonl, timings.jsonl and, where they are wanted,
// TensorBoard events. One process (rank 0) writes, on one thread; Sync may be called by another one
// meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "telemetry/metrics_log.h"
#include "telemetry/run_change.h"
#include "telemetry/tensorboard.h"

namespace trainctl::telemetry {

class RunLog {
 public:
  // Keeps what the logs hold up to `last_step_to_keep` (-1: they start again). The paths of the two logs are
  // those of `events`, whose folder is written only when `with_events`. With `drops_last_metrics`,
  // metrics.jsonl loses the line of that step, because the caller will append it again.
  static absl::StatusOr<RunLog> Open(const TensorboardOptions& events, bool with_events,
                                     int64_t last_step_to_keep, bool drops_last_metrics = false);

  // All changes that the run has seen. Those that no kept record follows go into the first one that does, so
  // that a run which is killed and goes on from the same checkpoint writes the same bytes.
  void NoteChanges(absl::Span<const RunChange> changes);

  // The speed at which the devices would do nothing but the model's products at their peak; 0 (as at first):
  // unknown. Timings that are appended after this tell their share of it as `mfu`.
  void set_peak_tokens_per_second(double peak) { peak_tokens_per_second_ = peak; }

  // `time_s`: seconds since 1970, for TensorBoard. Lines that cannot be written are kept (StepLog::Append).
  absl::Status Append(StepRecord record, double time_s);
  absl::Status Append(TimingRecord record);
  // Before a checkpoint is committed: makes both logs durable. If TensorBoard events could not be written,
  // the next record recreates them from the logs.
  absl::Status Sync();
  // Why appended records are not yet in the files; OK if they are.
  absl::Status trouble() const;

 private:
  RunLog(TensorboardOptions options, MetricsLog metrics, TimingsLog timings, int64_t last_step)
      : options_(std::move(options)),
        metrics_(std::move(metrics)),
        timings_(std::move(timings)),
        last_step_(last_step) {}
  absl::Status OpenEvents();
  template <typename Record>
  void AppendEvents(const Record& record, double time_s);

  TensorboardOptions options_;
  MetricsLog metrics_;
  TimingsLog timings_;
  std::optional<TensorboardLog> events_;  // empty if not wanted, or after events_trouble_
  absl::Status events_trouble_;
  std::unique_ptr<std::atomic<bool>> is_synced_ =
      std::make_unique<std::atomic<bool>>(false);  // since an event
  double peak_tokens_per_second_ = 0;
  int64_t last_step_;                      // recorded before this launch, or where it begins
  std::vector<std::string> next_changes_;  // for the next record
};

}  // namespace trainctl::telemetry
