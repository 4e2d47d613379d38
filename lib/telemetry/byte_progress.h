// How far work is that goes through a known number of bytes, as text. Pure but for the clock; not thread
// safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "base/clock.h"

namespace trainctl::telemetry {

// "[####............]"
std::string ProgressBar(int64_t done, int64_t total);
// "2:34", "1:02:34"
std::string TimeLeft(absl::Duration left);

class ByteProgress {
 public:
  // `terminal`: a line that replaces the one before, often; else a line of its own, after 5 s and then each
  // time twice as late, up to every 5 minutes.
  ByteProgress(const Clock& clock, bool terminal) : clock_(clock), terminal_(terminal) {}

  // The line to show, or "" while there is no need for one. The rate is that since the first call: bytes done
  // before it are not work of this time.
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
