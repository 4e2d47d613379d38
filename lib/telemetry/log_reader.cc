#include "telemetry/log_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "base/files.h"
#include "base/json.h"
#include "base/status.h"
#include "telemetry/step_log.h"

namespace trainctl::telemetry {
absl::StatusOr<LoggedStep> ParseLogLine(absl::string_view line, LogKind kind, absl::string_view where) {
  const absl::StatusOr<Json> parsed = ParseJson(line, where);
  if (!parsed.ok()) return BadDataError(absl::StrCat(where, ": damaged: not a line of this log"));
  const Json& object = *parsed;
  LoggedStep logged;
  TRAINCTL_ASSIGN_OR_RETURN(logged.step, JsonInt(object, "step", where));
  if (logged.step < 0) return BadDataError(absl::StrCat(where, ": step ", logged.step, " is negative"));
  const char* const group = kind == LogKind::kMetrics ? "train/" : "speed/";
  const bool before_training = kind == LogKind::kMetrics && logged.step == 0;
  for (const auto& [name, value] : object.items()) {
    if (kind == LogKind::kMetrics && name == "changed" && value.is_array()) {
      for (const Json& text : value) {
        if (text.is_string()) logged.changed.push_back(text.get<std::string>());
      }
    }
    if (kind == LogKind::kMetrics && name == "skipped") logged.skipped = value == true;
    if (value.is_object()) {
      logged.has_evaluation = logged.has_evaluation || (kind == LogKind::kMetrics && name == "eval");
      for (const auto& [inner, inner_value] : value.items()) {
        if (const std::optional<double> number = NumberOfJson(inner_value))
          logged.scalars.push_back({absl::StrCat(name, "/", inner), *number});
      }
      continue;
    }
    const std::optional<double> number = NumberOfJson(value);
    if (name == "step" || !number.has_value()) continue;
    if (kind == LogKind::kTimings && name == "time") {
      logged.time_s = *number;
      continue;
    }
    if (kind == LogKind::kTimings && name == "seconds") logged.seconds = *number;
    if (!before_training) logged.scalars.push_back({absl::StrCat(group, name), *number});
  }
  return logged;
}

absl::StatusOr<LogReader> LogReader::Open(const std::string& path, LogKind kind) {
  LogReader reader(path, kind);
  reader.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (reader.fd_ < 0 && errno != ENOENT) return ErrnoError("open", path, errno);
  return reader;
}

LogReader::LogReader(LogReader&& other) noexcept
    : path_(std::move(other.path_)),
      kind_(other.kind_),
      fd_(std::exchange(other.fd_, -1)),
      pending_(std::move(other.pending_)),
      consumed_(other.consumed_),
      line_number_(other.line_number_),
      last_step_(other.last_step_) {}

LogReader::~LogReader() {
  if (fd_ >= 0) ::close(fd_);
}

absl::StatusOr<bool> LogReader::Next(LoggedStep& step) {
  size_t searched = consumed_;
  size_t end;
  while ((end = pending_.find('\n', searched)) == std::string::npos) {
    if (fd_ < 0) return false;
    pending_.erase(0, consumed_);
    consumed_ = 0;
    searched = pending_.size();
    if (searched > kMaxLineBytes) {
      return BadDataError(absl::StrCat(path_, ":", line_number_ + 1, ": the line is longer than ",
                                       kMaxLineBytes, " bytes, so this is not a log of steps"));
    }
    pending_.resize(searched + kLogReadBytes);
    const ssize_t count = ::read(fd_, &pending_[searched], kLogReadBytes);
    const int error_number = errno;
    pending_.resize(searched + static_cast<size_t>(count > 0 ? count : 0));
    if (count < 0 && error_number == EINTR) continue;
    if (count < 0) return ErrnoError("read", path_, error_number);
    if (count == 0) return false;
  }
  const absl::string_view line = absl::string_view(pending_).substr(consumed_, end - consumed_);
  const std::string where = absl::StrCat(path_, ":", ++line_number_);
  TRAINCTL_ASSIGN_OR_RETURN(step, ParseLogLine(line, kind_, where));
  consumed_ = end + 1;
  if (step.step <= last_step_) {
    return BadDataError(absl::StrCat(where, ": step ", step.step, " follows step ", last_step_));
  }
  last_step_ = step.step;
  return true;
}

absl::StatusOr<Evaluations> ReadEvaluations(const std::string& metrics_path) {
  constexpr absl::string_view kTag = "eval/";
  TRAINCTL_ASSIGN_OR_RETURN(LogReader log, LogReader::Open(metrics_path, LogKind::kMetrics));
  Evaluations losses;
  LoggedStep line;
  while (true) {
    TRAINCTL_ASSIGN_OR_RETURN(const bool found, log.Next(line));
    if (!found) return losses;
    for (const Scalar& scalar : line.scalars) {
      if (absl::StartsWith(scalar.tag, kTag))
        losses[scalar.tag.substr(kTag.size())][line.step] = scalar.value;
    }
  }
}

bool HasEvaluation(const std::string& metrics_path, int64_t step) {
  absl::StatusOr<LogReader> reader = LogReader::Open(metrics_path, LogKind::kMetrics);
  if (!reader.ok()) return false;
  LoggedStep logged;
  for (absl::StatusOr<bool> found = reader->Next(logged); found.ok() && *found; found = reader->Next(logged))
    if (logged.step == step) return logged.has_evaluation;
  return false;
}

}  // namespace trainctl::telemetry
