// Progress through bytes on stderr: a bar that is redrawn on a terminal, else a line now and then. One thread
// at a time.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "telemetry/byte_progress.h"

namespace trainctl::cli {

int TerminalColumns();  // of stderr; 80 where it is none

class ProgressView {
 public:
  explicit ProgressView(bool terminal) : terminal_(terminal), progress_(clock_, terminal) {}
  ~ProgressView() { Clear(); }
  ProgressView(const ProgressView&) = delete;
  ProgressView& operator=(const ProgressView&) = delete;

  void Show(int64_t done_bytes, int64_t total_bytes);
  void Note(absl::string_view line);  // "trainctl: LINE", of its own
  void Clear();                       // the bar

 private:
  const bool terminal_;
  bool is_drawn_ = false;
  RealClock clock_;
  telemetry::ByteProgress progress_;
};

}  // namespace trainctl::cli
