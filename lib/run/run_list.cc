#include "run/run_list.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/json.h"
#include "base/status.h"

namespace trainctl::run {
namespace {

// The time of the journal's first event: RunState has that of the last launch.
absl::Time FirstEventTime(const std::string& path, absl::Time fallback) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return fallback;
  const absl::StatusOr<Json> line = ParseJson(text->substr(0, text->find('\n')), path);
  if (!line.ok() || !line->is_object() || !line->contains("time") || !(*line)["time"].is_string()) {
    return fallback;
  }
  absl::Time time;
  const bool is_time =
      absl::ParseTime(absl::RFC3339_full, (*line)["time"].get<std::string>(), &time, nullptr);
  return is_time ? time : fallback;
}

// Of a run whose journal knows no end.
std::string StatusOfOpenRun(const RunFolder& run, const RunState& state, const AskLauncher& answers) {
  switch (run.FindWork()) {
    case RunFolder::Work::kNone:
      return "interrupted";
    case RunFolder::Work::kSeen:
      break;
    case RunFolder::Work::kUnknown:
      if (answers == nullptr || !answers(run, state)) return "unreachable";
      break;
  }
  return std::string(RunStatusName(RunStatus::kRunning));
}

RunSummary Summarize(const RunFolder& run, const AskLauncher& answers) {
  RunSummary summary;
  summary.path = run.path();
  summary.name = std::filesystem::path(run.path()).filename().string();
  const absl::StatusOr<RunState> state = run.ReadState();
  if (state.ok()) {
    summary.status = std::string(RunStatusName(state->status));
    if (state->status == RunStatus::kRunning) summary.status = StatusOfOpenRun(run, *state, answers);
    summary.problem = state->damage;
    summary.launches = state->num_launches;
    summary.started = FirstEventTime(run.journal_path(), state->started);
  } else {
    summary.status = "damaged";
    summary.problem = std::string(state.status().message());
  }
  const checkpoint::NewestCommitted checkpoints = run.Checkpoints();
  summary.checkpoint_step = checkpoints.step;
  for (const std::string& problem : checkpoints.Problems()) {
    absl::StrAppend(&summary.problem, summary.problem.empty() ? "" : "; ", problem);
  }
  const bool is_running = summary.status == RunStatusName(RunStatus::kRunning);
  summary.progress = ReadProgress(run, state.ok() ? state->workers_started() : absl::InfinitePast());
  if (!is_running) summary.progress.time_left.reset();
  telemetry::LogFollower logs(run.metrics_path(), run.timings_path());
  logs.Update();
  summary.evaluation = logs.numbers().evaluation;
  return summary;
}

}  // namespace

absl::StatusOr<std::vector<RunSummary>> ListRuns(const std::string& root, const AskLauncher& answers) {
  std::vector<RunSummary> runs;
  std::error_code error;
  if (!std::filesystem::is_directory(root, error)) {
    return UsageError(absl::StrCat(root,
                                   " is not a directory; `trainctl launch` creates runs in the recipe's "
                                   "run.root, which is runs/ by default"));
  }
  const auto is_run = [](const std::filesystem::path& path) {
    std::error_code ignored;
    return std::filesystem::exists(path / "journal.jsonl", ignored);
  };
  std::vector<std::string> folders;
  if (is_run(root)) {
    folders.push_back(root);
  } else {
    for (std::filesystem::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
      std::error_code ignored;
      // `latest` is a link to one of the others.
      if (!it->is_symlink(ignored) && it->is_directory(ignored) && is_run(it->path())) {
        folders.push_back(it->path().string());
      }
    }
    if (error) return ErrnoError("read the folder", root, error.value());
  }
  for (const std::string& folder : folders) {
    const absl::StatusOr<RunFolder> run = RunFolder::Open(folder);
    if (run.ok()) {
      runs.push_back(Summarize(*run, answers));
    } else {
      runs.push_back({.name = std::filesystem::path(folder).filename().string(),
                      .path = folder,
                      .status = "damaged",
                      .problem = std::string(run.status().message())});
    }
  }
  std::sort(runs.begin(), runs.end(), [](const RunSummary& a, const RunSummary& b) {
    return std::tie(b.started, a.name) < std::tie(a.started, b.name);
  });
  return runs;
}

}  // namespace trainctl::run
