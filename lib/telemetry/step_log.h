// A crash-safe file with one JSON object per line, one line per step. Each line is written by a single
// write(2), and opening the file for a resume removes the lines after the checkpoint's step. The result is a
// new file under the same name, so a leftover process that still has the old file open cannot append to it.
// One thread appends; another may call Sync at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/json_fwd.h"

namespace trainctl::telemetry {

// Longer than any line that this module writes. A file with a longer one is something else.
inline constexpr size_t kMaxLineBytes = size_t{16} << 20;

// Formats a number exactly and deterministically, with the fewest digits that parse back to the same double.
// JSON cannot represent NaN and infinity, so these become the strings "nan", "inf" and "-inf".
std::string JsonNumber(double value);
// The inverse of JsonNumber. Returns nullopt if the value is neither a number nor one of these strings.
std::optional<double> NumberOfJson(const Json& value);
std::string JsonQuoted(absl::string_view text);  // invalid UTF-8 becomes U+FFFD

class StepLog {
 public:
  // Opens a log, keeping its complete lines with step <= last_step_to_keep (-1 keeps none) and removing the
  // rest, including an incomplete last line. Creates the file if it does not exist. If a line that should be
  // kept is malformed, returns a BadDataError that names the line and leaves the file unchanged.
  static absl::StatusOr<StepLog> Open(const std::string& path, int64_t last_step_to_keep);
  StepLog(StepLog&& other) noexcept;
  StepLog& operator=(StepLog&& other) noexcept;
  ~StepLog();

  // Appends a line. `fields` is the content of its object after "step", for example `"loss":2.5,"lr":0.001`.
  // Steps must increase; otherwise returns InternalError. If a line cannot be written in full, for example
  // because the disk is full, keeps it in memory and writes it together with a later line; trouble() returns
  // the reason. Returns EnvironmentError if more than 64 MiB would have to be kept.
  absl::Status Append(int64_t step, absl::string_view fields);
  // Makes all appended lines durable, or returns an error if some cannot be written. Call this before
  // committing a checkpoint, so a checkpoint never exists without the lines up to it.
  absl::Status Sync();
  // Returns the status of the last attempt to write.
  absl::Status trouble() const {
    std::lock_guard lock(*mutex_);
    return trouble_;
  }
  // The step of the last line, or -1 if there are no lines. If it is less than last_step_to_keep after Open,
  // lines are missing because the log was lost or never synced.
  int64_t last_step() const { return last_step_; }

 private:
  StepLog() = default;
  absl::Status Follow(int former, int64_t last_step_to_keep);
  absl::Status WritePending();  // requires mutex_
  std::string path_;
  int fd_ = -1;
  int64_t last_step_ = -1;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
  int64_t size_bytes_ = 0;  // guarded by mutex_, as are the next two fields
  std::string pending_;     // complete lines not yet in the file
  absl::Status trouble_;
};

}  // namespace trainctl::telemetry
