// All that a run writes of its steps, together: metrics.jsonl, timings.jsonl and, where they are wanted,
// TensorBoard events. One process (rank 0) writes; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "telemetry/metrics_log.h"
#include "telemetry/tensorboard.h"

namespace trainctl::telemetry {

class RunLog {
 public:
  // Keeps what the logs hold up to `last_step_to_keep` (-1: they start anew). The paths of the two logs are
  // those of `events`, whose folder is written only when `with_events`.
  static absl::StatusOr<RunLog> Open(const TensorboardOptions& events, bool with_events,
                                     int64_t last_step_to_keep);

  // The speed at which the devices would do nothing but the model's products at their peak; 0 (as at first):
  // unknown. Timings that are appended after this tell their share of it as `mfu`.
  void set_peak_tokens_per_second(double peak) { peak_tokens_per_second_ = peak; }

  // `time_s`: seconds since 1970, for TensorBoard.
  absl::Status Append(const StepRecord& record, double time_s);
  absl::Status Append(TimingRecord record);
  // Before a checkpoint is committed: makes the two logs durable.
  absl::Status Sync();

 private:
  RunLog(MetricsLog metrics, TimingsLog timings)
      : metrics_(std::move(metrics)), timings_(std::move(timings)) {}

  MetricsLog metrics_;
  TimingsLog timings_;
  std::optional<TensorboardLog> events_;
  double peak_tokens_per_second_ = 0;
};

}  // namespace trainctl::telemetry
