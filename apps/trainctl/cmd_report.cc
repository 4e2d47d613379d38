// `trainctl report`: loss, speed, memory and events of runs as a table, or as one page.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/output_options.h"
#include "apps/trainctl/progress_json.h"
#include "apps/trainctl/read_logged_run.h"
#include "apps/trainctl/text_table.h"
#include "base/json.h"
#include "base/units.h"
#include "launcher/printable_text.h"
#include "report/run_page.h"

namespace trainctl::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> runs;
  std::string html;
  bool force = false;
};

// Runs with the same name are distinguished by their paths.
void TellApart(std::vector<report::LoggedRun>& runs) {
  std::vector<bool> is_shared(runs.size());
  for (size_t i = 0; i < runs.size(); ++i) {
    for (size_t k = 0; k < runs.size(); ++k) {
      if (i != k && runs[i].name == runs[k].name) is_shared[i] = true;
    }
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    if (is_shared[i]) runs[i].name = runs[i].path;
  }
}

std::string BytesText(const std::optional<double>& bytes) {
  return bytes ? FormatBytes(std::llround(*bytes)) : "-";
}

void PrintTable(const std::vector<report::LoggedRun>& runs, bool color) {
  TextTable table(
      {"run", "status", "step", "of", "loss", "best evaluation", "tokens/s", "memory predicted", "measured"},
      {0, 1});
  for (const report::LoggedRun& run : runs) {
    const report::RunFigures figures = report::FiguresOf(run);
    table.Add(
        {launcher::PrintableText(run.name), run.status, figures.step < 0 ? "-" : absl::StrCat(figures.step),
         run.total_steps < 0 ? "-" : absl::StrCat(run.total_steps),
         figures.loss ? absl::StrFormat("%.4f", *figures.loss) : "-",
         figures.best_evaluation
             ? absl::StrFormat("%.4f (step %d)", *figures.best_evaluation, figures.best_evaluation_step)
             : "-",
         figures.tokens_per_second ? absl::StrFormat("%.0f", *figures.tokens_per_second) : "-",
         BytesText(run.memory.predicted_bytes), BytesText(run.memory.measured_bytes)},
        run.status == "running");
  }
  table.Print(color);
  for (const report::LoggedRun& run : runs) {
    if (run.problem.empty()) continue;
    std::printf("%s\n", launcher::PrintableText(absl::StrCat(run.name, ": ", run.problem)).c_str());
  }
}

// A run that cannot be read, among others that can.
struct DamagedRun {
  std::string path;
  absl::Status why;
};

Json FiguresJson(const report::LoggedRun& run) {
  const report::RunFigures figures = report::FiguresOf(run);
  Json best = nullptr;
  if (figures.best_evaluation.has_value()) {
    best = {{"loss", NumberOrNull(figures.best_evaluation)},
            {"step", figures.best_evaluation_step},
            {"set", figures.best_evaluation_set}};
  }
  return {{"name", run.name},
          {"path", run.path},
          {"status", run.status},
          {"problem", run.problem},
          {"step", StepOrNull(figures.step)},
          {"total_steps", StepOrNull(run.total_steps)},
          {"loss", NumberOrNull(figures.loss)},
          {"best_evaluation", std::move(best)},
          {"tokens_per_second", NumberOrNull(figures.tokens_per_second)},
          {"seconds_per_step", NumberOrNull(figures.step_seconds)},
          {"predicted_peak_bytes", NumberOrNull(run.memory.predicted_bytes)},
          {"measured_peak_bytes", NumberOrNull(run.memory.measured_bytes)}};
}

void PrintJson(const std::vector<report::LoggedRun>& runs, const std::vector<DamagedRun>& damaged) {
  Json json = {{"schema", "trainctl.compared_runs.v1"}, {"runs", Json::array()}, {"damaged", Json::array()}};
  for (const report::LoggedRun& run : runs) json["runs"].push_back(FiguresJson(run));
  for (const DamagedRun& run : damaged) {
    json["damaged"].push_back({{"path", run.path}, {"problem", std::string(run.why.message())}});
  }
  std::puts(PrintableJson(json, 2).c_str());
}

absl::StatusOr<ExitCode> WriteReport(ReportOptions options, const Output& output) {
  if (options.runs.empty()) options.runs.emplace_back();  // runs/latest
  std::vector<run::RunFolder> folders;
  for (const std::string& path : options.runs) {
    TRAINCTL_ASSIGN_OR_RETURN(run::RunFolder folder, run::RunFolder::Open(path));
    // runs/* names the latest run twice.
    const bool is_known = std::any_of(folders.begin(), folders.end(), [&folder](const run::RunFolder& other) {
      return other.path() == folder.path();
    });
    if (!is_known) folders.push_back(std::move(folder));
  }
  const OutputRules rules = {.overwrite = options.force};
  OutputKind kind = OutputKind::kNewFile;
  if (!options.html.empty()) {
    TRAINCTL_RETURN_IF_ERROR(CheckOutputs({{"--html", &options.html}}, rules));
    TRAINCTL_ASSIGN_OR_RETURN(const OutputTarget target, FindOutput(options.html, rules));
    kind = target.kind;
    for (const run::RunFolder& folder : folders) {
      if (!folder.IsOwnFile(target.path)) continue;
      return UsageError(absl::StrCat("--html: ", options.html, " is one of the files of run ", folder.path(),
                                     "; choose another file"));
    }
  }
  report::RunPageInput input;
  std::vector<DamagedRun> damaged;
  for (const run::RunFolder& folder : folders) {
    absl::StatusOr<report::LoggedRun> run = ReadLoggedRun(folder);
    if (run.ok()) {
      input.runs.push_back(*std::move(run));
    } else {
      damaged.push_back({folder.path(), run.status()});
    }
  }
  if (folders.size() == 1 && !damaged.empty()) return damaged.front().why;
  for (const DamagedRun& run : damaged) {
    const std::string text = absl::StrCat(run.path, " is omitted: ", run.why.message());
    std::fprintf(stderr, "trainctl: %s\n", launcher::PrintableText(text).c_str());
  }
  const ExitCode code = damaged.empty() ? ExitCode::kOk : ExitCodeFor(damaged.front().why);
  if (input.runs.empty()) return code;
  TellApart(input.runs);
  // A page that goes to stdout stays whole.
  const bool shows_figures = kind != OutputKind::kStream;
  if (shows_figures && output.json) PrintJson(input.runs, damaged);
  if (shows_figures && !output.json) PrintTable(input.runs, output.stdout_color);
  if (options.html.empty()) return code;
  TRAINCTL_RETURN_IF_ERROR(WriteOutputFile(options.html, report::RunPage(input), rules));
  if (kind != OutputKind::kStream) {
    // After JSON, stdout is for programs.
    std::fprintf(output.json ? stderr : stdout, "Wrote %s; open it in a browser\n",
                 launcher::PrintableText(options.html).c_str());
  }
  return code;
}

}  // namespace

void AddReport(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("report", "Compare loss, speed, memory and events across runs");
  auto options = std::make_shared<ReportOptions>();
  verb->add_option("RUN", options->runs, "Run folders (default: runs/latest)");
  verb->add_option("--html", options->html, "Write a self-contained HTML page with charts")
      ->type_name("OUT.html");
  AddForceFlag(*verb, options->force);
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl report runs/latest --html report.html");
  verb->callback([&action, options] {
    action = [options](const Output& output) { return WriteReport(*options, output); };
  });
}

}  // namespace trainctl::cli
