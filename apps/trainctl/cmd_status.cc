#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "apps/trainctl/command.h"
#include "base/json.h"
#include "base/shell_quote.h"
#include "launcher/printable_text.h"
#include "rpc/admin_client.h"
#include "run/run_folder.h"

namespace trainctl::cli {
namespace {

// What the journal and, if there is one, the launcher say.
struct Report {
  std::string path;
  run::RunState state;
  checkpoint::NewestCommitted checkpoints;
  std::optional<rpc::JobStatus> live;
  std::string status;  // of the journal, or "interrupted": the launcher ended without a word
};

absl::StatusOr<Report> MakeReport(const std::string& path) {
  TRAINCTL_ASSIGN_OR_RETURN(const run::RunFolder run, run::RunFolder::Open(path));
  Report report;
  report.path = run.path();
  TRAINCTL_ASSIGN_OR_RETURN(report.state, run.ReadState());
  if (!report.state.damage.empty()) std::fprintf(stderr, "warning: %s\n", report.state.damage.c_str());
  report.checkpoints = run.Checkpoints();
  report.status = std::string(run::RunStatusName(report.state.status));
  if (report.state.status != run::RunStatus::kRunning) return report;
  absl::StatusOr<rpc::JobStatus> live = rpc::GetJobStatus(report.state.socket, report.state.token_file);
  if (live.ok()) {
    report.live = *std::move(live);
  } else if (!run.IsWorkedOn()) {
    report.status = "interrupted";
  } else {
    report.status = "not answering";
  }
  return report;
}

Json ToJson(const Report& report) {
  Json json = {{"schema", "trainctl.status.v1"},
               {"run", report.path},
               {"status", report.status},
               {"world_size", report.state.world_size},
               {"generation", report.state.generation},
               {"launches", report.state.num_launches},
               {"restarts", report.state.num_restarts},
               {"message", report.state.message}};
  json["checkpoint_step"] = nullptr;
  if (report.checkpoints.step >= 0) json["checkpoint_step"] = report.checkpoints.step;
  json["checkpoint_problems"] = report.checkpoints.Problems();
  json["workers"] = Json::array();
  if (report.live) {
    json["launcher_pid"] = report.live->pid;
    json["phase"] = report.live->phase;
    json["stop"] = report.live->stop;
    for (const rpc::WorkerStatus& worker : report.live->workers) {
      json["workers"].push_back({{"rank", worker.rank},
                                 {"pid", worker.pid},
                                 {"state", worker.state},
                                 {"step", worker.step >= 0 ? Json(worker.step) : Json(nullptr)},
                                 {"phase", worker.phase},
                                 {"silent_ms", absl::ToInt64Milliseconds(worker.silent)}});
    }
  }
  return json;
}

std::string ToText(const Report& report) {
  std::string text =
      absl::StrFormat("run         %s\nstatus      %s", launcher::PrintableText(report.path), report.status);
  if (report.live) {
    absl::StrAppend(&text, " (", report.live->phase, ", process ", report.live->pid, ")");
    if (!report.live->stop.empty()) absl::StrAppend(&text, ", stopping ", report.live->stop);
  }
  absl::StrAppend(
      &text, "\nlaunches    ", report.state.num_launches, ", generation ", report.state.generation, ", ",
      report.state.num_restarts, " restarts in the last launch\ncheckpoint  ",
      report.checkpoints.step >= 0 ? absl::StrCat("step ", report.checkpoints.step) : "none", "\n");
  for (const std::string& problem : report.checkpoints.Problems()) {
    absl::StrAppend(&text, "            ", problem, "\n");
  }
  if (report.live) {
    for (const rpc::WorkerStatus& worker : report.live->workers) {
      absl::StrAppendFormat(&text, "rank %-6d %s", worker.rank, worker.state);
      if (worker.step >= 0) absl::StrAppendFormat(&text, ", step %d, %s", worker.step, worker.phase);
      if (worker.pid > 0) absl::StrAppend(&text, ", process ", worker.pid);
      absl::StrAppend(&text, "\n");
    }
  } else if (report.status == "interrupted") {
    const int64_t pid = report.state.launcher_pid;
    absl::StrAppend(&text, "The launcher", pid > 0 ? absl::StrCat(" (process ", pid, ")") : "",
                    " ended without a word. Continue with: trainctl resume ", ShellQuote(report.path), "\n");
  } else if (!report.state.message.empty()) {
    absl::StrAppend(&text, "message     ", launcher::PrintableText(report.state.message, true), "\n");
  }
  return text;
}

}  // namespace

void AddStatus(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("status", "Show how a run is doing");
  auto path = std::make_shared<std::string>();
  verb->add_option("RUN", *path, "Run folder (default: runs/latest)");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl status runs/llama-20260101-120000");
  verb->callback([&action, path] {
    action = [path](const Output& output) -> absl::StatusOr<ExitCode> {
      TRAINCTL_ASSIGN_OR_RETURN(const Report report, MakeReport(*path));
      if (output.json) {
        std::puts(ToJson(report).dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
      } else {
        std::fputs(ToText(report).c_str(), stdout);
      }
      return ExitCode::kOk;
    };
  });
}

}  // namespace trainctl::cli
