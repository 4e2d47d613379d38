#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/job_access.h"
#include "base/shell_quote.h"
#include "launcher/printable_text.h"
#include "run/run_folder.h"

namespace trainctl::cli {
namespace {

absl::Status Stop(const std::string& path, bool now, std::string* run_path) {
  TRAINCTL_ASSIGN_OR_RETURN(const run::RunFolder run, run::RunFolder::Open(path));
  *run_path = run.path();
  TRAINCTL_ASSIGN_OR_RETURN(const run::RunState state, run.ReadState());
  if (state.status != run::RunStatus::kRunning) {
    return EnvironmentError(
        absl::StrCat(run.path(), " is not running (", run::RunStatusName(state.status), ")"));
  }
  const absl::Status asked = AskToStop(run, state, now);
  if (asked.ok()) return asked;
  if (IsElsewhere(run, state)) {
    return EnvironmentError(absl::StrCat(run.path(), " was not stopped: ", asked.message(),
                                         ". See: trainctl status ", ShellQuote(run.path())));
  }
  const std::string process =
      state.launcher_pid > 0 ? absl::StrCat(" (process ", state.launcher_pid, ")") : "";
  return EnvironmentError(absl::StrCat(run.path(), " is not running: its launcher", process,
                                       " does not answer. See: trainctl status ", ShellQuote(run.path()),
                                       " (", asked.message(), ")"));
}

}  // namespace

void AddStop(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("stop", "Ask a running job to save and stop");
  auto path = std::make_shared<std::string>();
  auto now = std::make_shared<bool>(false);
  verb->add_option("RUN", *path, "Run folder (default: runs/latest)");
  verb->add_flag("--now", *now, "Stop at once, without saving");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl stop runs/latest");
  verb->callback([&action, path, now] {
    action = [path, now](const Output& output) -> absl::StatusOr<ExitCode> {
      std::string run_path;
      TRAINCTL_RETURN_IF_ERROR(Stop(*path, *now, &run_path));
      if (output.json) {
        const nlohmann::ordered_json report = {
            {"schema", "trainctl.stop.v1"}, {"run", run_path}, {"now", *now}};
        std::puts(report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
      } else {
        std::printf("%s is asked to %s. See: trainctl status %s\n", launcher::PrintableText(run_path).c_str(),
                    *now ? "stop at once, without saving" : "save and stop", ShellQuote(run_path).c_str());
      }
      return ExitCode::kOk;
    };
  });
}

}  // namespace trainctl::cli
