// A file of one JSON object per line and per step, that survives crashes: a line is written by a single
// write(2), and opening for a resume goes back to the checkpoint's step. It then is another file under the
// same name: a process that has the former one open, and lives on where nobody sees it, adds nothing to it.
// One thread appends; Sync may be called by another one meanwhile.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::telemetry {

// Exact and always the same: the shortest digits that give the same double back. JSON has no
// numbers for the others, so they are the strings "nan", "inf" and "-inf".
std::string JsonNumber(double value);
// The inverse; empty if the value is neither a number nor one of these strings.
std::optional<double> NumberOfJson(const nlohmann::ordered_json& value);
std::string JsonQuoted(absl::string_view text);  // invalid UTF-8 becomes U+FFFD

class StepLog {
 public:
  // Keeps the complete lines with step <= last_step_to_keep (-1: none, the file starts anew); what follows
  // them, a torn last line included, is gone. A missing file is made. BadDataError names the line when one
  // that should be kept is not of this format; the file is then as it was.
  static absl::StatusOr<StepLog> Open(const std::string& path, int64_t last_step_to_keep);
  StepLog(StepLog&& other) noexcept;
  StepLog& operator=(StepLog&& other) noexcept;
  ~StepLog();

  // `fields` is the inside of the object after "step": `"loss":2.5,"lr":0.001`. Steps must rise
  // (InternalError). If a line cannot be written in full, for example because the disk is full, the log keeps
  // it in memory and writes it with a later line; trouble() returns the reason. EnvironmentError if the log
  // would have to keep more than 64 MiB.
  absl::Status Append(int64_t step, absl::string_view fields);
  // Makes everything appended so far durable: before a checkpoint is committed, so that the lines
  // up to it are there whenever it is. An error if some cannot be written.
  absl::Status Sync();
  // The status of the last attempt to write.
  absl::Status trouble() const {
    std::lock_guard lock(*mutex_);
    return trouble_;
  }
  // Step of the last line; -1 when there is none. Less than last_step_to_keep after Open: lines are
  // missing (the log was lost or never synced).
  int64_t last_step() const { return last_step_; }

 private:
  StepLog() = default;
  absl::Status Follow(int former, int64_t last_step_to_keep);
  absl::Status WritePending();  // with mutex_
  std::string path_;
  int fd_ = -1;
  int64_t last_step_ = -1;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
  int64_t size_bytes_ = 0;  // with mutex_, and what follows
  std::string pending_;     // complete lines not yet in the file
  absl::Status trouble_;
};

}  // namespace trainctl::telemetry
