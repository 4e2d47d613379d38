// Writes a run's TensorBoard events: everything in metrics.jsonl and timings.jsonl as scalars, and the recipe
// and its changes as texts.
//
// The folder contains one file written by trainctl, with the content of the logs. It is recreated from the
// logs at each launch, so steps that a resume repeats do not appear twice. Other files in the folder are left
// alone. A folder can have only one writer: it is locked with flock while a TensorboardLog exists. Not
// thread-safe.
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
  // Folder for the events; created if necessary.
  std::string folder;
  std::string metrics_path;
  std::string timings_path;
  // Recipe, shown verbatim in a fixed-width font; omitted if empty.
  std::string recipe_text;
  // Start of the run, in seconds since the Unix epoch. Used for steps without a time in timings.jsonl.
  double start_time_s = 0;
  // Current time, in seconds since the Unix epoch. Part of the file's name, by which readers sort.
  double now_s = 0;
  // Whether to take over the folder even if another process, for example from an earlier launch, holds its
  // lock. Only for the process that is allowed to write to the run.
  bool takes_folder = false;
};

class TensorboardLog {
 public:
  // Writes a new file from both logs, replacing older ones. Call this after MetricsLog::Open and
  // TimingsLog::Open and before the first append. Returns EnvironmentError if another TensorboardLog holds
  // the folder, unless `takes_folder` is set. An EnvironmentError or BadDataError about a file names that
  // file.
  static absl::StatusOr<TensorboardLog> Open(const TensorboardOptions& options);
  TensorboardLog(TensorboardLog&& other) noexcept;
  TensorboardLog& operator=(TensorboardLog&& other) = delete;
  ~TensorboardLog();

  // Appends a record that is also being appended to the log. Readers see it immediately.
  absl::Status Append(const StepRecord& record, double now_s);
  absl::Status Append(const TimingRecord& record, double now_s);

  const std::string& path() const { return path_; }
  int64_t num_steps() const { return num_steps_; }      // number of steps in either log at Open
  int64_t num_scalars() const { return num_scalars_; }  // number of scalars at Open
  int64_t last_step() const { return last_step_; }      // last step at Open; -1 if there is none

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
