// Selects the model for a command: `RUN [--step N]`, a checkpoint's folder, or a Hugging Face folder.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace CLI {
class App;
}

namespace trainctl::cli {

// The model as typed on the command line.
struct ModelChoice {
  std::string
      path;  // a run folder, a checkpoint's folder, a Hugging Face folder, or empty for the latest run
  std::string step;  // a number, "best" or "best:SET", or empty for the newest good checkpoint
};

// Adds RUN and --step for a command that takes runs, checkpoints and Hugging Face folders.
void AddModelChoice(CLI::App& verb, ModelChoice& choice);
// Like AddModelChoice, for a command that takes only runs and checkpoints.
void AddCheckpointChoice(CLI::App& verb, ModelChoice& choice);

// Either a checkpoint of a run or a Hugging Face folder.
struct ModelSource {
  std::string run;         // the run folder; empty for a Hugging Face folder
  std::string checkpoint;  // the checkpoint's folder; empty for a Hugging Face folder
  std::string folder;      // the Hugging Face folder (absolute path); empty for a checkpoint

  bool is_folder() const { return !folder.empty(); }
  const std::string& path() const { return is_folder() ? folder : checkpoint; }
};

// Finds the model that `choice` names and checks that it can be used. A checkpoint that is named is read
// whole and compared with its checksums. A Hugging Face folder must pass the checks of model.weights =
// "from": a config.json of a model that this version trains, and all tensors of that model. Values of tensors
// are checked when they are read.
//
// "best" is the checkpoint with the lowest loss of an evaluation set in metrics.jsonl, of those that still
// exist.
//
// UsageError if there is no such folder, if it is none of the three, if there is no such checkpoint, or if
// --step is given with a folder. BadDataError if the model is damaged or of another kind, or if a run has no
// checkpoint. EnvironmentError if a folder lacks files.
absl::StatusOr<ModelSource> FindModel(const ModelChoice& choice);

// Like FindModel, but returns UsageError for a Hugging Face folder.
absl::StatusOr<ModelSource> FindCheckpoint(const ModelChoice& choice);

}  // namespace trainctl::cli
