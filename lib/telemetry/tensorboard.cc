#include "telemetry/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/files.h"
#include "base/lock_open_file.h"
#include "base/lock_owner.h"
#include "base/status.h"

namespace trainctl::telemetry {
namespace {

// Readers look for "tfevents" in a name and sort by what follows it; the end tells our files from others.
constexpr absl::string_view kPrefix = "events.out.tfevents.";
constexpr absl::string_view kSuffix = ".trainctl";
constexpr size_t kFlushBytes = size_t{1} << 20;

struct OldFiles {
  std::vector<std::string> names;
  int64_t newest = 0;  // the largest time in a name
  std::string newest_name;
};

absl::StatusOr<OldFiles> FindOldFiles(const std::string& folder) {
  OldFiles old;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(folder, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    absl::string_view rest = name;
    if (!absl::ConsumePrefix(&rest, kPrefix) || !absl::ConsumeSuffix(&rest, kSuffix)) continue;
    int64_t time = 0;
    if (absl::SimpleAtoi(rest.substr(0, rest.find('.')), &time) && time >= old.newest) {
      old.newest = time;
      old.newest_name = name;
    }
    old.names.push_back(name);
  }
  if (error) return ErrnoError("read the folder", folder, error.value());
  return old;
}

// Takes the files away that a new one replaces; what an older process still adds to them is seen by nobody.
// In place of the newest there is an empty one until the next time: a TensorBoard at work opens it again at
// each look, and would stop at one that is gone before it saw the new one.
absl::Status Retire(const std::string& folder, const OldFiles& old) {
  for (const std::string& name : old.names) {
    const std::string path = folder + name;
    if (name == old.newest_name) {
      TRAINCTL_RETURN_IF_ERROR(WriteFileAtomic(path, ""));
    } else if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
      return ErrnoError("remove", path, errno);
    }
  }
  return absl::OkStatus();
}

// Two writers would build one file together and then remove each other's. The folder itself is what is
// locked, so that nothing is left in it.
absl::StatusOr<int> LockFolder(const std::string& folder, bool takes_it) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoError("open folder", folder, errno);
  // Not every file system can lock a folder.
  if (TryLockOpenFile(fd, LockKind::kExclusive, folder).value_or(true) || takes_it) return fd;
  ::close(fd);
  return EnvironmentError(absl::StrCat("another process writes events into ", folder,
                                       "; wait for its end or name another folder"));
}

// Markdown that shows the text as it is.
std::string Indented(absl::string_view text) {
  std::string out = "    ";
  for (const char c : text) {
    out.push_back(c);
    if (c == '\n') out += "    ";
  }
  return out;
}

// A step's scalars, and on the page of texts what was changed before it.
std::string EventsOf(double time_s, const LoggedStep& logged) {
  std::string bytes = ScalarsEvent(time_s, logged.step, logged.scalars);
  if (!logged.changed.empty()) {
    bytes += TextEvent(time_s, logged.step, "changed", Indented(absl::StrJoin(logged.changed, "\n")));
  }
  return bytes;
}

// The steps of both logs, in order.
class MergedLogs {
 public:
  static absl::StatusOr<MergedLogs> Open(const TensorboardOptions& options) {
    TRAINCTL_ASSIGN_OR_RETURN(LogReader metrics, LogReader::Open(options.metrics_path, LogKind::kMetrics));
    TRAINCTL_ASSIGN_OR_RETURN(LogReader timings, LogReader::Open(options.timings_path, LogKind::kTimings));
    MergedLogs logs(std::move(metrics), std::move(timings));
    TRAINCTL_ASSIGN_OR_RETURN(logs.has_metrics_, logs.metrics_.Next(logs.metrics_step_));
    TRAINCTL_ASSIGN_OR_RETURN(logs.has_timings_, logs.timings_.Next(logs.timings_step_));
    return logs;
  }

  absl::StatusOr<bool> Next(LoggedStep& merged) {
    if (!has_metrics_ && !has_timings_) return false;
    const bool take_metrics = has_metrics_ && (!has_timings_ || metrics_step_.step <= timings_step_.step);
    const bool take_timings = has_timings_ && (!has_metrics_ || timings_step_.step <= metrics_step_.step);
    merged = {};
    if (take_metrics) {
      merged = std::move(metrics_step_);
      TRAINCTL_ASSIGN_OR_RETURN(has_metrics_, metrics_.Next(metrics_step_));
    }
    if (take_timings) {
      merged.step = timings_step_.step;
      merged.time_s = timings_step_.time_s;
      merged.seconds = timings_step_.seconds;
      std::move(timings_step_.scalars.begin(), timings_step_.scalars.end(),
                std::back_inserter(merged.scalars));
      TRAINCTL_ASSIGN_OR_RETURN(has_timings_, timings_.Next(timings_step_));
    }
    return true;
  }

 private:
  MergedLogs(LogReader metrics, LogReader timings)
      : metrics_(std::move(metrics)), timings_(std::move(timings)) {}

  LogReader metrics_;
  LogReader timings_;
  LoggedStep metrics_step_;
  LoggedStep timings_step_;
  bool has_metrics_ = false;
  bool has_timings_ = false;
};

}  // namespace

TensorboardLog::TensorboardLog(TensorboardLog&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      folder_fd_(std::exchange(other.folder_fd_, -1)),
      num_steps_(other.num_steps_),
      num_scalars_(other.num_scalars_),
      last_step_(other.last_step_) {}

TensorboardLog::~TensorboardLog() {
  if (fd_ >= 0) ::close(fd_);
  if (folder_fd_ >= 0) ::close(folder_fd_);
}

absl::StatusOr<TensorboardLog> TensorboardLog::Open(const TensorboardOptions& options) {
  TRAINCTL_RETURN_IF_ERROR(MakeDirs(options.folder));
  TensorboardLog log;
  TRAINCTL_ASSIGN_OR_RETURN(log.folder_fd_, LockFolder(options.folder, options.takes_folder));
  TRAINCTL_ASSIGN_OR_RETURN(const OldFiles old, FindOldFiles(options.folder));
  const std::string folder = options.folder + "/";
  const int64_t time = std::max(static_cast<int64_t>(options.now_s), old.newest + 1);
  const std::string host = HostName();
  const std::string name =
      absl::StrCat(kPrefix, absl::StrFormat("%010d", time), ".", host.empty() ? "localhost" : host, kSuffix);
  // Under a name that no reader looks at until it is whole.
  const std::string temporary = folder + ".trainctl-building";
  log.path_ = temporary;
  log.fd_ = OpenNewFile(temporary, O_WRONLY | O_APPEND);
  if (log.fd_ < 0) return ErrnoError("create", temporary, errno);
  absl::Status status = log.WriteLogs(options);
  if (status.ok()) status = Retire(folder, old);
  if (status.ok() && ::rename(temporary.c_str(), (folder + name).c_str()) != 0) {
    status = ErrnoError("rename to", folder + name, errno);
  }
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  log.path_ = folder + name;
  return log;
}

absl::Status TensorboardLog::Write(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoError("write", path_, errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status TensorboardLog::WriteLogs(const TensorboardOptions& options) {
  double time_s = options.start_time_s > 0 ? options.start_time_s : options.now_s;
  std::string bytes = EventFileStart(time_s, 0);
  if (!options.recipe_text.empty()) bytes += TextEvent(time_s, 0, "recipe", Indented(options.recipe_text));
  TRAINCTL_ASSIGN_OR_RETURN(MergedLogs logs, MergedLogs::Open(options));
  LoggedStep logged;
  while (true) {
    TRAINCTL_ASSIGN_OR_RETURN(const bool found, logs.Next(logged));
    if (!found) break;
    time_s = logged.time_s > 0 ? logged.time_s : time_s + logged.seconds;
    bytes += EventsOf(time_s, logged);
    ++num_steps_;
    num_scalars_ += static_cast<int64_t>(logged.scalars.size());
    last_step_ = logged.step;
    if (bytes.size() < kFlushBytes) continue;
    TRAINCTL_RETURN_IF_ERROR(Write(bytes));
    bytes.clear();
  }
  return Write(bytes);
}

absl::Status TensorboardLog::AppendLine(int64_t step, const std::string& fields, LogKind kind, double now_s) {
  TRAINCTL_ASSIGN_OR_RETURN(
      const LoggedStep logged,
      ParseLogLine(absl::StrCat("{\"step\":", step, ",", fields, "}"), kind, "a record of this step"));
  return Write(EventsOf(now_s, logged));
}

absl::Status TensorboardLog::Append(const StepRecord& record, double now_s) {
  return AppendLine(record.step, FormatFields(record), LogKind::kMetrics, now_s);
}

absl::Status TensorboardLog::Append(const TimingRecord& record, double now_s) {
  return AppendLine(record.step, FormatFields(record), LogKind::kTimings, now_s);
}

}  // namespace trainctl::telemetry
