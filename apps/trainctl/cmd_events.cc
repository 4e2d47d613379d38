// `trainctl events`: what happened to a run, from its journal.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/job_access.h"
#include "base/files.h"
#include "launcher/printable_text.h"
#include "run/event_text.h"
#include "run/run_folder.h"

namespace trainctl::cli {
namespace {

constexpr auto kFollowInterval = std::chrono::milliseconds(200);

void Print(const run::JournalEvent& event, bool json) {
  if (json) {
    std::puts(run::EventToJson(event).c_str());
    return;
  }
  const std::string time = absl::FormatTime("%Y-%m-%d %H:%M:%S", event.time, absl::UTCTimeZone());
  std::printf("%s  %s\n", time.c_str(), launcher::PrintableText(run::EventText(event)).c_str());
}

absl::Status PrintEvents(const std::string& path, bool follow, bool json) {
  TRAINCTL_ASSIGN_OR_RETURN(const run::RunFolder run, run::RunFolder::Open(path));
  RunWatch watch(run);
  size_t num_printed = 0;
  std::string warned;
  while (true) {
    // Asked before reading: what was written before the end is then read.
    const bool more = follow && watch.GoesOn();
    run::JournalText journal;
    if (PathExists(run.journal_path())) {
      TRAINCTL_ASSIGN_OR_RETURN(const std::string text, ReadFile(run.journal_path()));
      TRAINCTL_ASSIGN_OR_RETURN(journal, run::ParseJournal(text, run.journal_path()));
    }
    if (journal.damage != warned) {
      warned = journal.damage;
      std::fprintf(stderr, "warning: %s\n", launcher::PrintableText(warned).c_str());
    }
    for (; num_printed < journal.events.size(); ++num_printed) Print(journal.events[num_printed], json);
    std::fflush(stdout);
    if (std::ferror(stdout) != 0) return EnvironmentError("cannot write to stdout");
    if (!more) return absl::OkStatus();
    std::this_thread::sleep_for(kFollowInterval);
  }
}

}  // namespace

void AddEvents(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("events", "Print a run's history: launches, failures, checkpoints, stops");
  auto path = std::make_shared<std::string>();
  auto follow = std::make_shared<bool>(false);
  verb->add_option("RUN", *path, "Run folder (default: runs/latest)");
  verb->add_flag("--follow,-f", *follow, "Keep printing new events until the run ends");
  verb->add_flag("--json")->description("Print the journal's events, one JSON object per line");
  SetExample(*verb, "trainctl events runs/latest --follow");
  verb->callback([&action, path, follow] {
    action = [path, follow](const Output& output) -> absl::StatusOr<ExitCode> {
      TRAINCTL_RETURN_IF_ERROR(PrintEvents(*path, *follow, output.json));
      return ExitCode::kOk;
    };
  });
}

}  // namespace trainctl::cli
