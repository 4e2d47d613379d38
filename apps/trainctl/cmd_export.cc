#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "apps/trainctl/command.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/shell_quote.h"
#include "launcher/printable_text.h"
#include "run/run_folder.h"
#include "telemetry/tensorboard.h"

namespace trainctl::cli {
namespace {

struct ExportOptions {
  std::string run;
  std::string out;
};

absl::StatusOr<ExitCode> ExportTensorboard(const ExportOptions& options, const Output& output) {
  TRAINCTL_ASSIGN_OR_RETURN(run::RunFolder run, run::RunFolder::Open(options.run));
  // A run that goes on may write events into its own folder; another folder is nobody's.
  if (options.out.empty()) TRAINCTL_RETURN_IF_ERROR(run.Lock());
  if (!PathExists(run.metrics_path()) && !PathExists(run.timings_path())) {
    return BadDataError(absl::StrCat(run.path(), " has no metrics.jsonl yet, so there is nothing to export"));
  }
  telemetry::TensorboardOptions events;
  events.folder = options.out.empty() ? run.tensorboard_path() : options.out;
  events.metrics_path = run.metrics_path();
  events.timings_path = run.timings_path();
  if (PathExists(run.recipe_path())) {
    TRAINCTL_ASSIGN_OR_RETURN(events.recipe_text, ReadFile(run.recipe_path()));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const run::RunState state, run.ReadState());
  if (state.started != absl::InfinitePast()) {
    events.start_time_s = absl::ToDoubleSeconds(state.started - absl::UnixEpoch());
  }
  events.now_s = absl::ToDoubleSeconds(RealClock().Now() - absl::UnixEpoch());
  TRAINCTL_ASSIGN_OR_RETURN(const telemetry::TensorboardLog log, telemetry::TensorboardLog::Open(events));
  if (output.json) {
    const Json report = {{"schema", "trainctl.export-tensorboard.v1"},
                         {"run", run.path()},
                         {"file", log.path()},
                         {"steps", log.num_steps()},
                         {"last_step", log.last_step()},
                         {"scalars", log.num_scalars()}};
    std::puts(PrintableJson(report).c_str());
  } else {
    std::puts(absl::StrCat("Wrote ", launcher::PrintableText(log.path()), ": ", log.num_scalars(),
                           " scalars of ", log.num_steps(), " steps\nView them with: tensorboard --logdir ",
                           ShellQuote(events.folder))
                  .c_str());
  }
  return ExitCode::kOk;
}

}  // namespace

void AddExport(CLI::App& app, Action& action) {
  CLI::App* group = app.add_subcommand("export", "Export a run's metrics to other programs");
  group->require_subcommand(1);
  SetExample(*group, "trainctl export tensorboard runs/latest");
  CLI::App* verb =
      group->add_subcommand("tensorboard", "Export a run's metrics and recipe as TensorBoard events");
  auto options = std::make_shared<ExportOptions>();
  verb->add_option("RUN", options->run, "Run folder (default: runs/latest)");
  verb->add_option("--out", options->out,
                   "Folder for the events (default: RUN/tensorboard). The run may still be in progress")
      ->type_name("DIR");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl export tensorboard runs/latest --out /tmp/events");
  verb->callback([&action, options] {
    action = [options](const Output& output) { return ExportTensorboard(*options, output); };
  });
}

}  // namespace trainctl::cli
