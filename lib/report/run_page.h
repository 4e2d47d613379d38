// Training runs as one self-contained HTML page: loss, evaluation, learning rate, gradient norm, speed,
// memory predicted and measured, and events; several runs share the charts. The page loads nothing, and every
// text that it shows may contain anything. Pure; thread safe.
//
//   report::RunPageInput input;
//   input.runs.push_back(run);
//   WriteOutputFile("report.html", RunPage(input), rules);
//
// The page draws itself; when it has, <html> has the attribute data-check: "ok <N> runs, <M> points", or
// "error" and why.
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
  std::string time;   // "2026-11-28 22:17:08"; UTC
  int64_t step = -1;  // its place in the charts; -1: none
  std::string text;
};

struct MemoryPart {
  std::string name;
  std::optional<double> predicted_bytes;
  std::optional<double> measured_bytes;
};

// Tensor memory of the fullest worker. Empty fields are unknown.
struct RunMemory {
  std::optional<double> predicted_bytes;
  std::optional<double> measured_bytes;
  std::vector<MemoryPart> parts;  // at the peak
};

// The position of a step on the other axes.
struct StepPlace {
  int64_t step = 0;
  double tokens = 0;   // since the start of the run
  double seconds = 0;  // of training, without restarts and pauses
};

struct EvaluationCurve {
  std::string name;  // of the set
  Curve loss;
};

struct LoggedRun {
  std::string name;
  std::string path;
  std::string status;
  std::string problem;  // what could not be read; empty if nothing
  std::string started;  // UTC; empty: unknown
  int64_t total_steps = -1;
  Curve loss;
  Curve grad_norm;
  Curve lr;
  Curve tokens_per_second;
  Curve step_seconds;
  std::vector<EvaluationCurve> evaluation;
  std::vector<StepPlace> places;       // steps rise
  std::vector<int64_t> skipped_steps;  // their updates were left out
  std::vector<RunEvent> events;        // the first one first
  RunMemory memory;
  std::optional<double> predicted_step_seconds;
  std::vector<std::pair<std::string, std::string>> recipe;  // key and value: "optimizer.lr", "0.001"
};

struct RunPageInput {
  std::vector<LoggedRun> runs;
};

// The numbers in the summary of a run.
struct RunFigures {
  int64_t step = -1;  // the last one logged; -1: none
  double tokens = 0;
  std::optional<double> loss;  // the last one that is finite
  // The lowest loss of any evaluation set, with its step and set. Empty if there was no evaluation.
  std::optional<double> best_evaluation;
  int64_t best_evaluation_step = -1;
  std::string best_evaluation_set;
  std::optional<double> tokens_per_second;  // median of the last 50 logged steps
  std::optional<double> step_seconds;       // likewise
};
RunFigures FiguresOf(const LoggedRun& run);

std::string RunPage(const RunPageInput& input);

}  // namespace trainctl::report
