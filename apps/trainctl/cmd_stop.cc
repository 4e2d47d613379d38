#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/job_access.h"
#include "apps/trainctl/slurm_job.h"
#include "base/json.h"
#include "base/shell_quote.h"
#include "launcher/printable_text.h"
#include "run/run_folder.h"

namespace trainctl::cli {
namespace {

// What was stopped: the launch that works on the run, or the job that was to launch it.
struct Stopped {
  std::string run_path;
  std::string job;
};

absl::StatusOr<Stopped> Stop(const std::string& path, bool now) {
  TRAINCTL_ASSIGN_OR_RETURN(const run::RunFolder run, run::RunFolder::Open(path));
  Stopped stopped{run.path(), ""};
  TRAINCTL_ASSIGN_OR_RETURN(const run::RunState state, run.ReadState());
  if (state.status != run::RunStatus::kRunning) {
    const std::optional<RunJob> job = FindRunJob(run);
    if (job && job->state && job->state->WillLaunch()) {
      TRAINCTL_RETURN_IF_ERROR(CancelJob(job->id));
      stopped.job = job->id;
      return stopped;
    }
    return EnvironmentError(
        absl::StrCat(run.path(), " is not running (", run::RunStatusName(state.status), ")"));
  }
  const absl::Status asked = AskToStop(run, state, now);
  if (asked.ok()) return stopped;
  if (IsElsewhere(run, state) || absl::IsPermissionDenied(asked) || absl::IsAborted(asked)) {
    return EnvironmentError(absl::StrCat(run.path(), " was not stopped: ", asked.message(),
                                         ". See: trainctl status ", ShellQuote(run.path())));
  }
  const std::string process =
      state.launcher_pid > 0 ? absl::StrCat(" (process ", state.launcher_pid, ")") : "";
  return EnvironmentError(absl::StrCat(run.path(), " does not appear to be running: its launcher", process,
                                       " is not responding. See: trainctl status ", ShellQuote(run.path()),
                                       " (", asked.message(), ")"));
}

}  // namespace

void AddStop(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("stop", "Ask a running job to save and stop");
  auto path = std::make_shared<std::string>();
  auto now = std::make_shared<bool>(false);
  verb->add_option("RUN", *path, "Run folder (default: runs/latest)");
  verb->add_flag("--now", *now, "Stop immediately, without saving");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl stop runs/latest");
  verb->callback([&action, path, now] {
    action = [path, now](const Output& output) -> absl::StatusOr<ExitCode> {
      TRAINCTL_ASSIGN_OR_RETURN(const Stopped stopped, Stop(*path, *now));
      const std::string run_path = launcher::PrintableText(stopped.run_path);
      if (output.json) {
        Json report = {{"schema", "trainctl.stop.v1"}, {"run", stopped.run_path}, {"now", *now}};
        if (!stopped.job.empty()) report["cancelled_job"] = stopped.job;
        std::puts(PrintableJson(report).c_str());
      } else if (!stopped.job.empty()) {
        std::printf("canceled Slurm job %s; %s is unchanged\n", stopped.job.c_str(), run_path.c_str());
      } else {
        std::printf("%s was asked to %s. See: trainctl status %s\n", run_path.c_str(),
                    *now ? "stop immediately, without saving" : "save and stop",
                    ShellQuote(stopped.run_path).c_str());
      }
      return ExitCode::kOk;
    };
  });
}

}  // namespace trainctl::cli
