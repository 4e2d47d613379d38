// When the instructions of a step really ran on a rank, and the ranks of a run side by side, as Chrome's
// Trace Event Format (ui.perfetto.dev, chrome://tracing) under the schedule's own names.
//
//   StepRecorder recorder(instructions, {"compute", "gather", "reduce"}, rank, world_size);
//   recorder.Begin();                          // before the step
//   recorder.Add(i, begin_ns, end_ns);         // by whichever thread ran instruction i
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
  int stream = 0;    // index into the names of the streams
};

// CLOCK_MONOTONIC, the clock that spans are told in.
int64_t MonotonicNanoseconds();

// Of one rank. Begin and Write from one thread while no other adds; Add from any thread, each instruction
// from one.
class StepRecorder {
 public:
  StepRecorder(std::vector<TracedInstruction> instructions, std::vector<std::string> streams, int rank,
               int world_size);

  // Forgets all spans and looks at the clocks.
  void Begin();
  // Instruction `i` ran within [begin_ns, end_ns].
  void Add(size_t i, int64_t begin_ns, int64_t end_ns) { spans_[i] = {begin_ns, end_ns}; }
  // Writes `step-<step>-rank-<rank>.json` in `folder`, which is made, under a temporary name first.
  // Instructions that were not added are left out.
  absl::Status Write(const std::string& folder, int64_t step) const;

 private:
  struct Span {
    int64_t begin_ns = 0;
    int64_t end_ns = -1;  // before its begin: not added
  };
  std::vector<TracedInstruction> instructions_;
  std::vector<std::string> streams_;
  int rank_;
  int world_size_;
  int64_t monotonic_ns_ = 0;  // at Begin, and the wall clock at the same moment
  int64_t unix_ns_ = 0;
  std::vector<Span> spans_;
};

// What was predicted of a step: spans from its begin on.
struct PredictedSpan {
  std::string name;
  int stream = 0;
  double begin_s = 0;
  double end_s = 0;
};

// Of the ranks that run one program.
struct PredictedRanks {
  std::string ranks;  // "each rank", "pp 1"
  std::vector<std::string> streams;
  std::vector<PredictedSpan> spans;
};

// How the clock of a rank was set beside that of the first rank. Ranks of one machine share one clock; else
// wall clocks say how far apart they are, as well as the machines keep time.
struct ClockOffset {
  int rank = 0;
  double offset_us = 0;  // was added to its times
  bool same_clock = true;
};

struct MergedStep {
  int64_t step = 0;
  int num_ranks = 0;
  double seconds = 0;  // from the first begin to the last end, of all ranks
  std::vector<ClockOffset> clocks;
};

struct MergedTrace {
  std::string json;
  std::vector<MergedStep> steps;
  std::vector<std::string> notes;  // ranks that are missing, files of another number of workers
};

// The traces in `folder`, of one step or (-1) of all, on one time axis: a process for each rank, a thread for
// each of its streams, and one process more for each program with what was predicted, begun anew with each
// step. BadDataError: none is there, or a file is not a trace.
absl::StatusOr<MergedTrace> MergeTraces(const std::string& folder, int64_t step,
                                        const std::vector<PredictedRanks>& predicted,
                                        absl::string_view title);

}  // namespace trainctl::telemetry
