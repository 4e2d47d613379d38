#include "run/run_progress.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/json.h"
#include "telemetry/step_pace.h"

namespace trainctl::run {
namespace {

// A line has about a thousand bytes.
constexpr int64_t kTailBytes = 256 << 10;
constexpr int64_t kMaxRecipeBytes = 16 << 20;
constexpr size_t kMaxSteps = 200;

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
  const std::vector<std::string> lines = LastLines(path, kMaxSteps);
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    absl::StatusOr<Json> json = ParseJson(*line, path);
    if (json.ok() && json->is_object()) return *std::move(json);
  }
  return std::nullopt;
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

int64_t IntOr(const Json& line, const char* key, int64_t otherwise) {
  const auto it = line.find(key);
  return it != line.end() && it->is_number_integer() ? it->get<int64_t>() : otherwise;
}

void ReadTimings(const std::string& path, absl::Time since, RunProgress& progress) {
  telemetry::StepPace speed, of_these_workers;
  telemetry::DoneStep last;
  last.step = -1;
  for (const std::string& text : LastLines(path, kMaxSteps)) {
    const absl::StatusOr<Json> line = ParseJson(text, path);
    if (!line.ok() || !line->is_object() || IntOr(*line, "step", -1) < 0) continue;
    telemetry::DoneStep step;
    step.step = IntOr(*line, "step", -1);
    step.tokens_per_second = Number(*line, "tokens_per_second").value_or(std::nan(""));
    step.mfu = Number(*line, "mfu");
    const std::optional<double> time_s = Number(*line, "time");  // older builds did not write it
    step.done = time_s.has_value() ? absl::UnixEpoch() + absl::Seconds(*time_s) : absl::InfinitePast();
    last = step;
    if (step.done > since) of_these_workers.Add(step);
    if (step.done > since || !time_s.has_value()) speed.Add(step);
    const auto memory = line->find("memory_bytes");
    if (memory != line->end() && memory->is_object()) {
      if (const int64_t peak = IntOr(*memory, "tensor_peak", -1); peak >= 0) progress.memory_bytes = peak;
    }
  }
  if (last.step < 0) return;
  progress.step = std::max(progress.step, last.step);
  if (last.done != absl::InfinitePast()) progress.done = last.done;
  progress.tokens_per_second = speed.TokensPerSecond();
  progress.mfu = speed.Mfu();
  progress.per_step = of_these_workers.PerStep();
  if (progress.total_steps >= 0) progress.time_left = of_these_workers.TimeLeft(progress.total_steps);
}

}  // namespace

std::vector<std::string> LastLines(const std::string& path, size_t max_lines) {
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
  if (lines.size() > max_lines) {
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(max_lines));
  }
  return lines;
}

RunProgress ReadProgress(const RunFolder& run, absl::Time since) {
  RunProgress progress;
  progress.total_steps = TotalSteps(run.recipe_path());
  if (const std::optional<Json> last = LastObject(run.metrics_path())) {
    progress.step = IntOr(*last, "step", -1);
    if (progress.step > 0) {  // step 0 is an evaluation before training
      progress.loss_step = progress.step;
      progress.loss = Number(*last, "loss");
      progress.skipped_steps = IntOr(*last, "skipped_steps", 0);
    }
  }
  ReadTimings(run.timings_path(), since, progress);
  return progress;
}

}  // namespace trainctl::run
