#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/job_access.h"
#include "base/json.h"
#include "base/shell_quote.h"
#include "launcher/printable_text.h"
#include "run/run_folder.h"

namespace trainctl::cli {
namespace {

constexpr auto kLookInterval = std::chrono::milliseconds(100);

absl::Status NotSaved(const run::RunFolder& run, absl::string_view why) {
  return EnvironmentError(
      absl::StrCat(run.path(), " was not saved: ", why, ". See: trainctl status ", ShellQuote(run.path())));
}

// The step that is being trained, whose state is wanted.
absl::StatusOr<int64_t> StepInProgress(const run::RunFolder& run, const run::RunState& state) {
  const absl::StatusOr<rpc::JobStatus> job = AskLauncher(run, state);
  if (!job.ok()) return NotSaved(run, job.status().message());
  for (const rpc::WorkerStatus& worker : job->workers) {
    if (worker.rank == 0 && worker.step > 0) return worker.step;
  }
  return NotSaved(run, "training has not started yet");
}

// Until a checkpoint of this or a later step is committed.
absl::StatusOr<int64_t> AwaitCheckpoint(const run::RunFolder& run, const run::RunState& asked, int64_t step) {
  RunWatch watch(run);
  for (bool goes_on = true;;) {
    const int64_t newest = run.NewestCheckpointStep(step - 1);
    if (newest >= step) return newest;
    if (!goes_on) return NotSaved(run, "it has ended");
    TRAINCTL_ASSIGN_OR_RETURN(const run::RunState now, run.ReadState());
    if (now.num_launches != asked.num_launches || now.generation != asked.generation) {
      return NotSaved(run, "its workers have restarted");
    }
    goes_on = watch.GoesOn();  // what is committed before its end is looked for once more
    if (goes_on) std::this_thread::sleep_for(kLookInterval);
  }
}

absl::StatusOr<int64_t> Save(const run::RunFolder& run) {
  TRAINCTL_ASSIGN_OR_RETURN(const run::RunState state, run.ReadState());
  if (state.status != run::RunStatus::kRunning) {
    return EnvironmentError(
        absl::StrCat(run.path(), " is not running (", run::RunStatusName(state.status), ")"));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t step, StepInProgress(run, state));
  // What is known of the step may be a moment old, and one that was due be saved meanwhile.
  const int64_t last = run.NewestCheckpointStep();
  if (const absl::Status asked = AskToSave(run, state); !asked.ok()) return NotSaved(run, asked.message());
  return AwaitCheckpoint(run, state, std::max(step, last + 1));
}

}  // namespace

void AddSave(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("save", "Ask a running job to save a checkpoint now");
  auto path = std::make_shared<std::string>();
  verb->add_option("RUN", *path, "Run folder (default: runs/latest)");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl save runs/latest");
  verb->callback([&action, path] {
    action = [path](const Output& output) -> absl::StatusOr<ExitCode> {
      TRAINCTL_ASSIGN_OR_RETURN(const run::RunFolder run, run::RunFolder::Open(*path));
      TRAINCTL_ASSIGN_OR_RETURN(const int64_t step, Save(run));
      if (output.json) {
        const Json report = {{"schema", "trainctl.save.v1"}, {"run", run.path()}, {"step", step}};
        std::puts(PrintableJson(report).c_str());
      } else {
        std::printf("%s: saved a checkpoint at step %lld\n", launcher::PrintableText(run.path()).c_str(),
                    static_cast<long long>(step));
      }
      return ExitCode::kOk;
    };
  });
}

}  // namespace trainctl::cli
