// How a run failed, for the end of `launch` and for `status`: who and what, when, the end of the log, what to
// do.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "run/run_folder.h"

namespace trainctl::cli {

struct FailureReport {
  std::string run_path;
  std::string message;  // who failed, where, how, and why it was not restarted
  absl::Time launched = absl::InfinitePast(), ended = absl::InfinitePast();
  int64_t num_restarts = 0;  // of that launch
  int64_t step = -1, total_steps = -1;
  int64_t checkpoint_step = -1;
  std::string log_path;               // of the rank that failed; empty: none did, but the job
  std::vector<std::string> log_tail;  // its end, fit for a terminal
  std::string advice;                 // the way on, where there is more to say than to resume
};

// Of a run whose last launch failed, from its files; what cannot be read is left out.
FailureReport ReportFailure(const run::RunFolder& run, const run::RunState& state);

// "2026-11-24 05:39:07 UTC, 1:02:13 h after the launch, after 2 restarts"
std::string WhenText(const FailureReport& report);
// The end of the log, at most `max_lines`, and the way on; lines, each with its newline.
std::string LogAndWayOnText(const FailureReport& report, size_t max_lines);
// All of it.
std::string FailureText(const FailureReport& report);

}  // namespace trainctl::cli
