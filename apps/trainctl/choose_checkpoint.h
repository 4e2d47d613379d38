// Which checkpoint a verb works with: `RUN [--step N]`, or the folder of a checkpoint in place of RUN.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace trainctl::cli {

struct CheckpointChoice {
  std::string run;   // a run folder, a checkpoint's folder, or empty: the latest run
  std::string step;  // a number, "best" or "best:SET"; empty: the newest good checkpoint
};

// Adds RUN and --step.
void AddCheckpointChoice(CLI::App& verb, CheckpointChoice& choice);

struct ChosenCheckpoint {
  std::string run;   // its folder
  std::string path;  // of the checkpoint
};

// "best" has the lowest loss of an evaluation set in metrics.jsonl, among the checkpoints that are there. One
// that is named is read whole and compared with its checksums. UsageError: no such checkpoint, or none that
// was evaluated; BadDataError: it is damaged, or there is none at all.
absl::StatusOr<ChosenCheckpoint> ChooseCheckpoint(const CheckpointChoice& choice);

}  // namespace trainctl::cli
