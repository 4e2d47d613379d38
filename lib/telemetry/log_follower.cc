#include "telemetry/log_follower.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "base/json.h"
#include "telemetry/log_reader.h"
#include "telemetry/step_log.h"

namespace trainctl::telemetry {
namespace {

// Only lines with an evaluation have this key. A line that has it in a text is parsed too, without effect.
constexpr absl::string_view kEvaluationKey = "\"eval\":";

std::optional<double> NumberIn(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? std::nullopt : NumberOfJson(*found);
}

std::optional<int64_t> IntIn(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<int64_t>();
}

void AddEvaluation(int64_t step, double loss, EvaluationNumbers& numbers) {
  numbers.last = {step, loss};
  if (!std::isfinite(loss) || (numbers.best.has_value() && loss >= numbers.best->loss)) return;
  numbers.best = numbers.last;
}

}  // namespace

EvaluationsBySet::const_iterator BestEvaluated(const EvaluationsBySet& evaluations) {
  const auto best_loss = [](const EvaluationsBySet::value_type& set) {
    return set.second.best.has_value() ? set.second.best->loss : HUGE_VAL;
  };
  return std::min_element(evaluations.begin(), evaluations.end(),
                          [&](const auto& a, const auto& b) { return best_loss(a) < best_loss(b); });
}

LogFollower::LogFollower(std::string metrics_path, std::string timings_path)
    : metrics_{.path = std::move(metrics_path)}, timings_{.path = std::move(timings_path)} {}

LogFollower::~LogFollower() {
  for (const Log* log : {&metrics_, &timings_}) {
    if (log->fd >= 0) ::close(log->fd);
  }
}

bool LogFollower::Update() {
  const auto is_other_file = [](const Log& log) {
    struct stat info;
    return ::stat(log.path.c_str(), &info) != 0 ? log.fd >= 0 : info.st_ino != log.inode || log.fd < 0;
  };
  bool has_news = false;
  if (is_other_file(metrics_) && Reopen(metrics_)) {
    numbers_.step = -1;
    numbers_.loss = numbers_.grad_norm = numbers_.lr = std::nullopt;
    numbers_.tokens.reset();
    numbers_.evaluation.clear();
    has_news = true;
  }
  if (is_other_file(timings_) && Reopen(timings_)) {
    numbers_.tokens_per_second = numbers_.mfu = numbers_.done_s = std::nullopt;
    numbers_.peak_bytes.reset();
    has_news = true;
  }
  has_news |= Follow(metrics_, [this](absl::string_view line, bool is_last) { ReadMetrics(line, is_last); });
  has_news |= Follow(timings_, [this](absl::string_view line, bool is_last) {
    if (is_last) ReadTimings(line);
  });
  return has_news;
}

// Returns whether this replaces an earlier file, whose lines no longer count.
bool LogFollower::Reopen(Log& log) {
  const bool had_file = log.fd >= 0;
  if (had_file) ::close(log.fd);
  log.pending.clear();
  log.fd = ::open(log.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info = {};
  if (log.fd >= 0 && (::fstat(log.fd, &info) != 0 || !S_ISREG(info.st_mode))) {
    ::close(log.fd);
    log.fd = -1;
  }
  log.inode = info.st_ino;
  return had_file;
}

template <typename ReadLine>
bool LogFollower::Follow(Log& log, ReadLine read_line) {
  bool has_news = false;
  while (log.fd >= 0) {
    const size_t had = log.pending.size();
    log.pending.resize(had + kLogReadBytes);
    const ssize_t count = ::read(log.fd, &log.pending[had], kLogReadBytes);
    const int error_number = errno;
    log.pending.resize(had + static_cast<size_t>(count > 0 ? count : 0));
    if (count < 0 && error_number == EINTR) continue;
    if (count <= 0) break;
    size_t begin = 0;
    for (size_t end; (end = log.pending.find('\n', begin)) != std::string::npos; begin = end + 1) {
      // The last complete line so far. More may follow, and then a later line is the last one.
      const bool is_last = log.pending.find('\n', end + 1) == std::string::npos;
      read_line(absl::string_view(log.pending).substr(begin, end - begin), is_last);
      has_news = true;
    }
    log.pending.erase(0, begin);
    if (log.pending.size() > kMaxLineBytes) log.pending.clear();
  }
  return has_news;
}

void LogFollower::ReadMetrics(absl::string_view line, bool is_last) {
  if (!is_last && !absl::StrContains(line, kEvaluationKey)) return;
  const absl::StatusOr<Json> json = ParseJson(line, "");
  if (!json.ok() || !json->is_object()) return;
  const int64_t step = IntIn(*json, "step").value_or(-1);
  if (step < numbers_.step || step < 0) return;
  numbers_.step = step;
  // The line of step 0 has only an evaluation.
  const bool is_trained = step > 0;
  numbers_.loss = is_trained ? NumberIn(*json, "loss") : std::nullopt;
  numbers_.grad_norm = is_trained ? NumberIn(*json, "grad_norm") : std::nullopt;
  numbers_.lr = is_trained ? NumberIn(*json, "lr") : std::nullopt;
  numbers_.tokens = IntIn(*json, "tokens");
  const auto evaluation = json->find("eval");
  if (evaluation == json->end() || !evaluation->is_object()) return;
  for (const auto& [set, value] : evaluation->items()) {
    if (const std::optional<double> loss = NumberOfJson(value)) {
      AddEvaluation(step, *loss, numbers_.evaluation[set]);
    }
  }
}

void LogFollower::ReadTimings(absl::string_view line) {
  const absl::StatusOr<Json> json = ParseJson(line, "");
  if (!json.ok() || !json->is_object()) return;
  numbers_.tokens_per_second = NumberIn(*json, "tokens_per_second");
  numbers_.mfu = NumberIn(*json, "mfu");
  numbers_.done_s = NumberIn(*json, "time");
  const auto memory = json->find("memory_bytes");
  if (memory != json->end() && memory->is_object()) numbers_.peak_bytes = IntIn(*memory, "tensor_peak");
}

}  // namespace trainctl::telemetry
