// The one door from apps/worker into LibTorch: trains, evaluates, saves. c10 exceptions end here.
// Every rank of the world must call the same function with the same recipe and plan.
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
  int local_rank = 0;                 // among the workers of this machine: the device that it takes
  std::string address = "127.0.0.1";  // of this machine, where the other workers reach it
  std::string device_plugin;          // what plan.device other than "cpu" is opened with (device/device.h)
  KeyValueStore* store = nullptr;
  ControlChannel* control = nullptr;
  const Clock* clock = nullptr;
  // Asked before each write into the folder of the run, also by the thread that saves; may be empty. An error
  // ends the run.
  std::function<absl::Status()> check_run_folder;
  std::string save_tag;  // of this start of all ranks; see checkpoint::CheckpointWriter
  std::string checkpoints_path;
  std::string metrics_path;
  std::string timings_path;
  std::string documents_path;                 // folder for data/kept_documents.h
  std::string data_record_path;               // data/data_record.h
  std::string tensorboard_path;               // folder for events, where metrics.tensorboard asks for them
  std::string traces_path;                    // folder for what metrics.trace_steps asks for
  std::string profiles_path;                  // folder for what metrics.profile_steps asks for
  std::string attention_path;                 // what was chosen of a device's attention kernels
  std::string recipe_text;                    // as stored with the run; shown beside the events
  std::string report_path;                    // what was predicted and measured, written at the end by rank 0
  std::vector<telemetry::RunChange> changes;  // all that resumes have changed of the run; for its curves
  // Why the run must not begin at step 1 where it has no checkpoint: OK for a new one.
  absl::Status may_begin;
  int64_t stop_after = -1;      // save and stop when this step is done; -1: no
  std::string fault;            // crash tests: see fault_injector.h; empty: none
  std::string fault_mark_path;  // made when the fault strikes; while it exists there is no fault
  // Called when everything is done and saved, before anything is taken down: what then fails or hangs, in a
  // device's library say, is of no account any more.
  std::function<absl::Status(RunOutcome)> announce_end;
};

// Trains from the newest good checkpoint (or from the start) to train.steps. A failure that its exit code
// does not explain is told to `control` before anything is taken down.
absl::StatusOr<RunOutcome> RunWorker(const WorkerDeps& deps);

struct InferenceDeps {
  const recipe::Recipe* recipe = nullptr;
  std::string checkpoint_path;   // empty: initial weights
  std::string model_files_path;  // what the run keeps of its model's folder (run/model_files.h), if anything
  int threads = 1;
  int64_t weight_bytes = 0;  // of weights that may be in memory at a time; 0: all
};

struct GenerateOptions {
  std::string prompt;
  int64_t max_tokens = 200;
  double temperature = 0.8;  // 0: the most likely token
  double top_p =
      1;  // sample among the fewest most likely tokens that have this probability together; 1: among all
  uint64_t seed = 0;
};
struct Generated {
  int64_t tokens = 0;  // new ones, without the end of text
  bool ended = false;  // by an end of text, not by max_tokens
};
struct GenerateOutput {
  // The prompt, then the text as it comes, in whole characters of UTF-8 and often empty. An error ends it.
  std::function<absl::Status(const std::string& text)> write;
  std::function<void(const std::string& text)> note;  // before the text
};
// One process. Ends after max_tokens, or where the model or the tokenizer ends a text. The model sees at most
// max_position tokens: when they are full, the older half leaves and the others are read anew.
absl::StatusOr<Generated> RunGenerate(const InferenceDeps& deps, const GenerateOptions& options,
                                      const GenerateOutput& output);

// One process. Held-out loss per evaluation set, as JSON ("trainctl.eval.v1").
absl::StatusOr<std::string> RunEval(const InferenceDeps& deps);

struct ExportedFile {
  std::string name;
  int64_t bytes = 0;
};
struct Exported {
  std::vector<ExportedFile> files;  // those that were written, by name
  bool is_bytes = false;            // the model reads bytes, so there is no tokenizer
};
// One process. Writes a Hugging Face folder with the checkpoint's weights, in fp32 or bf16, and with what the
// run keeps of the folder that the model came from.
absl::StatusOr<Exported> RunExport(const InferenceDeps& deps, const std::string& out_folder, bool bf16);

// One process. Every operator on device `ordinal` of a plugin and on the CPU, a line of JSON each on stdout.
// 0: all agree, 1: not. EnvironmentError: the device cannot be used. WorkerError: a kernel ended it.
absl::StatusOr<int> CheckDevice(const std::string& plugin_path, int ordinal);

// One process. How fast device `ordinal` runs each kernel that passes over memory, of those whose names have
// `only` in them, over `rows` rows of 4,096 elements: a line of JSON each on stdout, a copy's first unless
// `only` is stated. EnvironmentError: the device cannot be used, or lacks the memory. UsageError: `only`
// names none. WorkerError: a kernel failed.
absl::Status TimeOperators(const std::string& plugin_path, int ordinal, int64_t rows,
                           const std::string& only);

// One process. What device `ordinal` of a plugin takes for a copy, launches, products and attention
// (simulate/measured_device.h), as a line of JSON. EnvironmentError: the device cannot be used, or lacks the
// memory. WorkerError: a kernel failed.
absl::StatusOr<std::string> MeasureDevice(const std::string& plugin_path, int ordinal);

// Of the headers that this was built with; programs and library are installed together.
const char* LibTorchVersion();

}  // namespace trainctl::trainer
