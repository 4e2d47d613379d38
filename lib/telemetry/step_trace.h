// Records when each instruction of a step ran on a rank, and merges a run's ranks into one trace in Chrome's
// Trace Event Format (for ui.perfetto.dev or chrome://tracing). Instructions have the same names as in the
// schedule.
//
//   StepRecorder recorder(instructions, {"compute", "gather", "reduce"}, rank, world_size);
//   recorder.Begin();                          // before the step
//   recorder.Add(i, begin_ns, end_ns);         // from the thread that ran instruction i
//   recorder.Write(folder, step);              // folder/step-10-rank-0.json
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::telemetry {

inline constexpr char kTraceSchema[] = "trainctl.trace.v1";

struct TracedInstruction {
  std::string name;  // "forward block 3 micro-batch 1"
  int stream = 0;    // index into the stream names
};

// Returns the time of CLOCK_MONOTONIC, which all spans use.
int64_t MonotonicNanoseconds();

// Records one rank's step. Add may be called from several threads at once for different instructions. Begin
// and Write must not run concurrently with any other call.
class StepRecorder {
 public:
  StepRecorder(std::vector<TracedInstruction> instructions, std::vector<std::string> streams, int rank,
               int world_size);

  // Discards all spans and reads the clocks.
  void Begin();
  // Records that instruction `i` ran in [begin_ns, end_ns].
  void Add(size_t i, int64_t begin_ns, int64_t end_ns) { spans_[i] = {begin_ns, end_ns}; }
  // Atomically writes `step-<step>-rank-<rank>.json` to `folder`, which is created if necessary. Omits
  // instructions that were not added.
  absl::Status Write(const std::string& folder, int64_t step) const;

 private:
  struct Span {
    int64_t begin_ns = 0;
    int64_t end_ns = -1;  // less than begin_ns if not added
  };
  std::vector<TracedInstruction> instructions_;
  std::vector<std::string> streams_;
  int rank_;
  int world_size_;
  int64_t monotonic_ns_ = 0;  // time of Begin; unix_ns_ is the wall-clock time at the same moment
  int64_t unix_ns_ = 0;
  std::vector<Span> spans_;
};

// A predicted part of a step, in seconds since the start of the step.
struct PredictedSpan {
  std::string name;
  int stream = 0;
  double begin_s = 0;
  double end_s = 0;
};

// The prediction for all ranks that run the same program.
struct PredictedRanks {
  std::string ranks;  // for example "each rank" or "pp 1"
  std::vector<std::string> streams;
  std::vector<PredictedSpan> spans;
};

// The correction of a rank's clock relative to the first rank's. Ranks on the same machine share a clock. For
// ranks on other machines, the correction is the difference between the wall clocks, so it is only as
// accurate as the machines' clock synchronization.
struct ClockOffset {
  int rank = 0;
  double offset_us = 0;  // value to add to the rank's times
  bool same_clock = true;
};

struct MergedStep {
  int64_t step = 0;
  int num_ranks = 0;
  double seconds = 0;  // from the earliest start to the latest end on any rank
  std::vector<ClockOffset> clocks;
};

struct MergedTrace {
  std::string json;
  std::vector<MergedStep> steps;
  std::vector<std::string>
      notes;  // notes on missing ranks and on files from runs with another number of workers
};

// Merges the traces in `folder` on a common time axis: those of `step`, or of all steps if it is -1. Each
// rank becomes a process with one thread per stream. Each program gets another process with its prediction,
// repeated for each step. Returns BadDataError if there are no traces or a file is not a trace.
absl::StatusOr<MergedTrace> MergeTraces(const std::string& folder, int64_t step,
                                        const std::vector<PredictedRanks>& predicted,
                                        absl::string_view title);

}  // namespace trainctl::telemetry
