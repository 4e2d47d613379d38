// The functions that apps/worker calls: training, and the jobs of one process (generate, eval, export and the
// device checks). apps/worker includes no headers of LibTorch. Exceptions of LibTorch are converted to
// statuses here.
//
//   WorkerDeps deps;
//   deps.recipe = &recipe;
//   ...
//   TRAINCTL_ASSIGN_OR_RETURN(const RunOutcome outcome, RunWorker(deps));
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/control_channel.h"
#include "base/key_value_store.h"
#include "recipe/recipe.h"
#include "telemetry/run_change.h"

namespace trainctl::trainer {

enum class RunOutcome { kFinished, kStoppedOnRequest };

struct WorkerDeps {
  const recipe::Recipe* recipe = nullptr;
  std::string plan_json;  // plan.json of the run folder
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // index among the workers of this machine; also the number of the device to use
  std::string address = "127.0.0.1";  // address of this machine for the other workers
  std::string device_plugin;          // path of the plugin for a plan.device other than "cpu"
  KeyValueStore* store = nullptr;
  ControlChannel* control = nullptr;
  const Clock* clock = nullptr;
  // Called before each write into the run folder, also on the thread that saves; may be empty. An error ends
  // the run.
  std::function<absl::Status()> check_run_folder;
  std::string save_tag;  // the same for all ranks of this start; see checkpoint::CheckpointWriter
  std::string checkpoints_path;
  std::string metrics_path;
  std::string timings_path;
  std::string documents_path;                 // folder, see data/kept_documents.h
  std::string data_record_path;               // file, see data/data_record.h
  std::string tensorboard_path;               // folder of the events, if metrics.tensorboard is set
  std::string traces_path;                    // folder of the traces of metrics.trace_steps
  std::string profiles_path;                  // folder of the profiles of metrics.profile_steps
  std::string attention_path;                 // file with the choice of a device's attention kernel
  std::string recipe_text;                    // recipe as stored with the run; shown in TensorBoard
  std::string report_path;                    // file that rank 0 writes at the end (run_report.h)
  std::vector<telemetry::RunChange> changes;  // all changes that resumes have made; shown with the curves
  // OK if a run without a checkpoint may begin at step 1, as a new run may. Otherwise the error to return.
  absl::Status may_begin;
  int64_t stop_after = -1;      // saves and stops after this step; -1 for never
  std::string fault;            // fault of a crash test, see fault_injector.h; may be empty
  std::string fault_mark_path;  // file created by the fault; there is no fault if it exists
  // Called when all work is done and saved, before anything is shut down. After this call, a failure or a
  // hang, for example in a device's library, no longer matters. May be empty.
  std::function<absl::Status(RunOutcome)> announce_end;

  bool is_first_rank() const { return rank == 0; }
  absl::Status CheckRunFolder() const { return check_run_folder ? check_run_folder() : absl::OkStatus(); }
};

// Trains from the newest good checkpoint, or from the start, until train.steps or a request to stop.
// Collective: every rank of the world must call it with the same recipe and plan. Reports a failure of the
// run to `control` before anything is shut down (failure_report.h).
//
// Returns:
//   WorkerError if a device or another rank fails;
//   BadDataError for bad data or checkpoints;
//   CheckFailedError if the loss or gradients are not finite;
//   UsageError if the plan does not fit the recipe or the number of workers;
//   EnvironmentError if the system refuses a resource.
absl::StatusOr<RunOutcome> RunWorker(const WorkerDeps& deps);

// The model of a job of one process: a checkpoint of a run, or a Hugging Face folder
// (recipe::RecipeOfFolder).
struct InferenceDeps {
  const recipe::Recipe* recipe = nullptr;
  // If empty, the weights are those of the folder model.from if model.weights is "from", else the random
  // initial weights.
  std::string checkpoint_path;
  // The Hugging Face folder, or the run's copies of its files (run/model_files.h).
  std::string model_files_path;
  int threads = 1;
  int64_t weight_bytes = 0;  // maximum bytes of weights in memory at a time; 0 for no limit
};

struct GenerateOptions {
  std::string prompt;
  int64_t max_tokens = 200;
  double temperature = 0.8;  // 0 always chooses the most likely token
  // Nucleus sampling: samples from the fewest most likely tokens whose total probability is at least this. 1
  // samples from all tokens.
  double top_p = 1;
  uint64_t seed = 0;
};
struct Generated {
  std::vector<int32_t> tokens;  // new tokens, without the end-of-text token
  bool ended = false;           // whether the model ended the text before max_tokens
  std::string model_json;       // report fields that describe the model, see BlockWeights::Describe
  std::string late_note;        // a note to the user to print after the text; may be empty
};
struct GenerateOutput {
  // Receives the prompt, then the text as it is generated, in whole UTF-8 characters. Pieces are often empty.
  // An error ends the generation and is returned.
  std::function<absl::Status(const std::string& text)> write;
  std::function<void(const std::string& text)> note;  // receives notes to the user, before the text
};
// Continues a text in one process. Ends after max_tokens new tokens, or at a token that ends a text for the
// model or the tokenizer. The model sees at most max_position tokens of context. When the context is full,
// its older half is dropped and the rest is read again. Returns UsageError if the prompt cannot be encoded,
// and BadDataError if the weights are damaged or do not belong to the model.
absl::StatusOr<Generated> RunGenerate(const InferenceDeps& deps, const GenerateOptions& options,
                                      const GenerateOutput& output);

// Computes the loss of each evaluation set in one process. Returns a report as JSON ("trainctl.eval.v1").
// Prints notes and warnings to stderr. Returns UsageError if the recipe has no evaluation set, and
// BadDataError for bad weights or data.
absl::StatusOr<std::string> RunEval(const InferenceDeps& deps);

struct ExportedFile {
  std::string name;
  int64_t bytes = 0;
};
struct Exported {
  std::vector<ExportedFile> files;  // files that the folder did not contain before
  bool is_bytes = false;            // whether tokens are bytes, so that there is no tokenizer
  std::vector<std::string> notes;   // notes on the folder, one sentence each
};
// Writes a Hugging Face folder in one process, and creates the folder if necessary. It contains config.json
// and the checkpoint's weights in fp32 or bf16. It also contains the run's copies of other files of the
// folder from which the model came (run/model_files.h). Its config.json is the run's copy, in which only the
// fields that changed are new (model/update_config.h). Returns BadDataError if the weights are damaged or do
// not belong to the model.
absl::StatusOr<Exported> RunExport(const InferenceDeps& deps, const std::string& out_folder, bool bf16);

// Runs every operator on device `ordinal` of a plugin and on the CPU, and compares the results. One process.
// Prints one line of JSON per operator to stdout. Returns 0 if all agree, else 1. Returns EnvironmentError if
// the device cannot be used, and WorkerError if a kernel fails.
absl::StatusOr<int> CheckDevice(const std::string& plugin_path, int ordinal);

// Measures how fast device `ordinal` of a plugin runs each memory-bound kernel whose name contains `only`,
// over `rows` rows of 4,096 elements. One process. Prints one line of JSON per kernel to stdout. If `only` is
// empty, the first line is for a copy. Returns EnvironmentError if the device cannot be used or lacks memory,
// UsageError if no kernel's name contains `only`, and WorkerError if a kernel fails.
absl::Status TimeOperators(const std::string& plugin_path, int ordinal, int64_t rows,
                           const std::string& only);

// Measures the speed of copies, kernel launches, matrix products and attention on device `ordinal` of a
// plugin. One process. Returns the times as one line of JSON (simulate/measured_device.h). Returns
// EnvironmentError if the device cannot be used or lacks memory, and WorkerError if a kernel fails.
absl::StatusOr<std::string> MeasureDevice(const std::string& plugin_path, int ordinal);

// Returns the LibTorch version of the headers used for this build. It is also that of the library, because
// the programs and the library are installed together.
const char* LibTorchVersion();

}  // namespace trainctl::trainer
