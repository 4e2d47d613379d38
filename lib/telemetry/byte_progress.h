// Formats the progress of an operation that processes bytes. No side effects except for reading the clock.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "base/clock.h"

namespace trainctl::telemetry {

// Returns a bar such as "[####............]".
std::string ProgressBar(int64_t done, int64_t total);
// Formats a duration, for example "2:34" or "1:02:34".
std::string TimeLeft(absl::Duration left);

class ByteProgress {
 public:
  // If `terminal` is true, lines are frequent and each overwrites the previous one. Otherwise each is a
  // separate line: the first after 5 s, and the following ones at intervals that double up to 5 minutes.
  ByteProgress(const Clock& clock, bool terminal) : clock_(clock), terminal_(terminal) {}

  // Returns the line to show, or "" if none is due. `total_bytes` is 0 if unknown. The rate is measured from
  // the first call, because the bytes before that were processed by an earlier process.
  std::string Update(int64_t done_bytes, int64_t total_bytes);

 private:
  const Clock& clock_;
  const bool terminal_;
  bool has_begun_ = false;
  int64_t first_bytes_ = 0;
  absl::Duration first_time_;
  absl::Duration next_time_;
  absl::Duration interval_;
};

}  // namespace trainctl::telemetry
