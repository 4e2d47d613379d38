// TensorBoard events of a run: everything in metrics.jsonl and timings.jsonl as scalars, the recipe and
// what was changed of it as texts.
//
// A folder holds one file of ours, and that file holds what the logs hold: it is made anew from them whenever
// a launch begins, so that the steps which a resume takes back are not there twice. Files of others in the
// folder are left alone. One writer per folder, which is locked (flock) as long as a TensorboardLog lives;
// one thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "telemetry/log_reader.h"
#include "telemetry/metrics_log.h"

namespace trainctl::telemetry {

struct TensorboardOptions {
  std::string folder;  // is made if need be
  std::string metrics_path;
  std::string timings_path;
  std::string recipe_text;  // shown as it is, in type of one width; empty: none
  double start_time_s = 0;  // of the run, since 1970: for steps whose time is not in timings.jsonl
  double now_s = 0;         // since 1970; in the file's name, after which readers sort
  // For who may write to the run, whoever else has the folder: a process of before that lives on, say.
  bool takes_folder = false;
};

class TensorboardLog {
 public:
  // Writes a new file from both logs and puts it in the place of older ones. Before the logs are appended to:
  // after MetricsLog::Open and TimingsLog::Open. EnvironmentError and BadDataError name the file.
  // EnvironmentError when another TensorboardLog has the folder, unless it is taken.
  static absl::StatusOr<TensorboardLog> Open(const TensorboardOptions& options);
  TensorboardLog(TensorboardLog&& other) noexcept;
  TensorboardLog& operator=(TensorboardLog&& other) = delete;
  ~TensorboardLog();

  // What is appended to the logs, as it is appended there. Seen by readers at once.
  absl::Status Append(const StepRecord& record, double now_s);
  absl::Status Append(const TimingRecord& record, double now_s);

  const std::string& path() const { return path_; }
  int64_t num_steps() const { return num_steps_; }      // from the logs, by Open; steps of either
  int64_t num_scalars() const { return num_scalars_; }  // likewise
  int64_t last_step() const { return last_step_; }      // likewise; -1: none

 private:
  TensorboardLog() = default;
  absl::Status Write(absl::string_view bytes);
  absl::Status WriteLogs(const TensorboardOptions& options);
  absl::Status AppendLine(int64_t step, const std::string& fields, LogKind kind, double now_s);

  std::string path_;
  int fd_ = -1;
  int folder_fd_ = -1;  // holds the lock
  int64_t num_steps_ = 0;
  int64_t num_scalars_ = 0;
  int64_t last_step_ = -1;
};

}  // namespace trainctl::telemetry
