#include "run/run_list.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/json.h"
#include "base/status.h"
#include "run/run_folder.h"

namespace trainctl::run {
namespace {

// The last lines of a log, without reading the rest of it; a line has some hundred bytes.
constexpr int64_t kTailBytes = 64 << 10;
constexpr int64_t kMaxRecipeBytes = 16 << 20;
constexpr size_t kStepsOfSpeed = 20;

// The complete lines at the end of a file; none where there is no such file.
std::vector<std::string> LastLines(const std::string& path) {
  std::vector<std::string> lines;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return lines;
  struct stat info = {};
  std::string text;
  int64_t begin = 0;
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
    begin = std::max<int64_t>(0, info.st_size - kTailBytes);
    text.resize(static_cast<size_t>(info.st_size - begin));
    const ssize_t count = ::pread(fd, text.data(), text.size(), begin);
    text.resize(count < 0 ? 0 : static_cast<size_t>(count));
  }
  ::close(fd);
  lines = absl::StrSplit(text, '\n');
  lines.pop_back();  // what follows the last line break is torn or nothing
  // The first may have begun before.
  if (begin > 0 && !lines.empty()) lines.erase(lines.begin());
  return lines;
}

// A number, or one of the words that stand for those that JSON has none for.
std::optional<double> Number(const Json& line, const char* key) {
  const auto it = line.find(key);
  if (it == line.end()) return std::nullopt;
  if (it->is_number()) return it->get<double>();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (*it == "nan") return std::nan("");
  if (*it == "inf") return kInfinity;
  if (*it == "-inf") return -kInfinity;
  return std::nullopt;
}

// The last line that is whole and can be read: a run may be writing.
std::optional<Json> LastObject(const std::string& path) {
  const std::vector<std::string> lines = LastLines(path);
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    absl::StatusOr<Json> json = ParseJson(*line, path);
    if (json.ok() && json->is_object()) return *std::move(json);
  }
  return std::nullopt;
}

// The median of the last steps.
std::optional<double> Typical(std::vector<std::string> lines, const std::string& path, const char* key) {
  if (lines.size() > kStepsOfSpeed) lines.erase(lines.begin(), lines.end() - kStepsOfSpeed);
  std::vector<double> speeds;
  for (const std::string& line : lines) {
    const absl::StatusOr<Json> json = ParseJson(line, path);
    if (!json.ok() || !json->is_object()) continue;
    const std::optional<double> speed = Number(*json, key);
    if (speed.has_value() && std::isfinite(*speed)) speeds.push_back(*speed);
  }
  if (speeds.empty()) return std::nullopt;
  const auto middle = speeds.begin() + static_cast<std::ptrdiff_t>(speeds.size() / 2);
  std::nth_element(speeds.begin(), middle, speeds.end());
  return *middle;
}

int64_t TotalSteps(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxRecipeBytes);
  if (!text.ok()) return -1;
  const absl::StatusOr<Json> recipe = ParseJson(*text, path);
  if (!recipe.ok() || !recipe->is_object() || !recipe->contains("train")) return -1;
  const Json& train = (*recipe)["train"];
  if (!train.is_object() || !train.contains("steps") || !train["steps"].is_number_integer()) return -1;
  return train["steps"].get<int64_t>();
}

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

RunSummary Summarize(const RunFolder& run) {
  RunSummary summary;
  summary.path = run.path();
  summary.name = std::filesystem::path(run.path()).filename().string();
  const absl::StatusOr<RunState> state = run.ReadState();
  if (state.ok()) {
    summary.status = std::string(RunStatusName(state->status));
    if (state->status == RunStatus::kRunning && !run.IsWorkedOn()) summary.status = "interrupted";
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
  summary.total_steps = TotalSteps(run.recipe_path());
  if (const std::optional<Json> last = LastObject(run.metrics_path())) {
    const auto step = last->find("step");
    if (step != last->end() && step->is_number_integer()) summary.step = step->get<int64_t>();
    summary.loss = Number(*last, "loss");
  }
  const std::vector<std::string> timings = LastLines(run.timings_path());
  summary.tokens_per_second = Typical(timings, run.timings_path(), "tokens_per_second");
  summary.mfu = Typical(timings, run.timings_path(), "mfu");
  return summary;
}

}  // namespace

absl::StatusOr<std::vector<RunSummary>> ListRuns(const std::string& root) {
  std::vector<RunSummary> runs;
  std::error_code error;
  if (!std::filesystem::is_directory(root, error)) {
    return UsageError(absl::StrCat(root,
                                   " is no folder; runs are made by `trainctl launch` in run.root of their "
                                   "recipe, which is runs/ unless it says otherwise"));
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
      runs.push_back(Summarize(*run));
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
