// Everything that a run logs about its steps: metrics.jsonl, timings.jsonl and, optionally, TensorBoard
// events. Only one process (rank 0) writes, on one thread; another thread may call Sync at the same time.
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
  // Opens the logs at the paths in `events`, and keeps their lines up to `last_step_to_keep` (-1 keeps none).
  // Writes the TensorBoard folder only if `with_events` is true. If `drops_last_metrics` is true, also
  // removes the line of `last_step_to_keep` from metrics.jsonl, because the caller will append it again.
  static absl::StatusOr<RunLog> Open(const TensorboardOptions& events, bool with_events,
                                     int64_t last_step_to_keep, bool drops_last_metrics = false);

  // Sets all changes made to the run. Changes made after the last kept record are logged with the next one,
  // so a run that is killed and resumed from the same checkpoint writes identical bytes.
  void NoteChanges(absl::Span<const RunChange> changes);

  // Sets the speed that the devices would reach if they did nothing but compute the model's matrix products
  // at their peak rate; 0 (the default) if unknown. Later timings report their share of this speed as `mfu`.
  void set_peak_tokens_per_second(double peak) { peak_tokens_per_second_ = peak; }

  // Appends a record. `time_s`, in seconds since the Unix epoch, is for TensorBoard. A line that cannot be
  // written is kept in memory (see StepLog::Append).
  absl::Status Append(StepRecord record, double time_s);
  absl::Status Append(TimingRecord record);
  // Makes both logs durable. Call this before committing a checkpoint. If TensorBoard events could not be
  // written, the next record recreates them from the logs.
  absl::Status Sync();
  // Returns why some appended records are not in the files yet, or OK if all are.
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
  std::optional<TensorboardLog> events_;  // empty if not requested or after an error (events_trouble_)
  absl::Status events_trouble_;
  std::unique_ptr<std::atomic<bool>> is_synced_ =
      std::make_unique<std::atomic<bool>>(false);  // whether Sync was called since the last event
  double peak_tokens_per_second_ = 0;
  int64_t last_step_;                      // last logged step, or the step from which this launch starts
  std::vector<std::string> next_changes_;  // changes for the next record
};

}  // namespace trainctl::telemetry
