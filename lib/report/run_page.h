// Renders one or more training runs as a self-contained HTML page: loss, evaluation, learning rate, gradient
// norm, speed, predicted and measured memory, and events. Several runs share the charts. The page loads
// nothing from any server, and all texts are escaped. Pure functions; thread-safe.
//
//   report::RunPageInput input;
//   input.runs.push_back(run);
//   WriteOutputFile("report.html", RunPage(input), rules);
//
// A script in the page draws the charts. When it is done, it sets the attribute data-check of <html> to "ok
// <N> runs, <M> points", or to "error" and the reason.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/curve.h"

namespace trainctl::report {

enum class RunEventKind { kOther, kFailure, kRestart, kChange, kCheckpoint };

struct RunEvent {
  RunEventKind kind = RunEventKind::kOther;
  std::string time;   // UTC time, such as "2026-11-28 22:17:08"
  int64_t step = -1;  // position in the charts; -1 if it has none
  std::string text;
};

struct MemoryPart {
  std::string name;
  std::optional<double> predicted_bytes;
  std::optional<double> measured_bytes;
};

// Tensor memory of the worker with the highest peak. Fields without a value are unknown.
struct RunMemory {
  std::optional<double> predicted_bytes;
  std::optional<double> measured_bytes;
  std::vector<MemoryPart> parts;  // parts of the memory at the peak
};

// A step's position on the other horizontal axes.
struct StepPlace {
  int64_t step = 0;
  double tokens = 0;   // tokens since the start of the run
  double seconds = 0;  // training time, excluding restarts and pauses
};

struct EvaluationCurve {
  std::string name;  // name of the evaluation set
  Curve loss;
};

struct LoggedRun {
  std::string name;
  std::string path;
  std::string status;
  std::string problem;  // describes files that could not be read; empty if all were
  std::string started;  // UTC time; empty if unknown
  int64_t total_steps = -1;
  Curve loss;
  Curve grad_norm;
  Curve lr;
  Curve tokens_per_second;
  Curve step_seconds;
  std::vector<EvaluationCurve> evaluation;
  std::vector<StepPlace> places;       // places in increasing order of steps
  std::vector<int64_t> skipped_steps;  // steps whose update was skipped
  std::vector<RunEvent> events;        // events, oldest first
  RunMemory memory;
  std::optional<double> predicted_step_seconds;
  // Keys and values, such as "optimizer.lr" and "0.001".
  std::vector<std::pair<std::string, std::string>> recipe;
};

struct RunPageInput {
  std::vector<LoggedRun> runs;
};

// The numbers in a run's summary.
struct RunFigures {
  int64_t step = -1;           // last logged step; -1 if there is none
  double tokens = 0;           // tokens since the start of the run, at that step
  std::optional<double> loss;  // last finite loss
  // The lowest loss on any evaluation set, with its step and set; nullopt if there was no evaluation.
  std::optional<double> best_evaluation;
  int64_t best_evaluation_step = -1;
  std::string best_evaluation_set;
  std::optional<double> tokens_per_second;  // median of the last 50 logged steps
  std::optional<double> step_seconds;       // median of the same steps
};
// Computes the numbers from the run's curves and places.
RunFigures FiguresOf(const LoggedRun& run);

// Returns the HTML of the page. Long curves are thinned (curve.h) to limit its size.
std::string RunPage(const RunPageInput& input);

}  // namespace trainctl::report
