#include "launcher/worker_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/files.h"
#include "base/status.h"
#include "base/units.h"
#include "launcher/printable_text.h"

namespace trainctl::launcher {
namespace {

constexpr size_t kTailBytes = 64 << 10;
constexpr size_t kMaxWaitingBytes = 64 << 20;   // of one worker
constexpr int64_t kMaxOverhangBytes = 1 << 20;  // of a line beyond the limit

// Whether the last byte of a file of that size is a newline. A worker that was killed may have written half a
// line.
bool EndsLine(const std::string& path, int64_t size_bytes) {
  if (size_bytes == 0) return true;
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return false;
  char last = 0;
  const bool is_read = ::pread(fd, &last, 1, size_bytes - 1) == 1;
  ::close(fd);
  return is_read && last == '\n';
}

}  // namespace

void LineSplitter::Add(absl::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    const size_t newline = bytes.find('\n');
    const absl::string_view piece = bytes.substr(0, newline);
    size_t taken = 0;
    while (taken < piece.size()) {
      const size_t room = kMaxLineBytes - pending_.size();
      const absl::string_view part = piece.substr(taken, room);
      pending_.append(part.data(), part.size());
      taken += part.size();
      if (pending_.size() == kMaxLineBytes && taken < piece.size()) Emit(sink);
    }
    if (newline == absl::string_view::npos) {
      if (pending_.size() == kMaxLineBytes) Emit(sink);
      return;
    }
    Emit(sink);
    bytes.remove_prefix(newline + 1);
  }
}

void LineSplitter::Flush(const Sink& sink) {
  if (!pending_.empty()) Emit(sink);
}

void LineSplitter::Emit(const Sink& sink) {
  absl::string_view line = pending_;
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const size_t restart = line.rfind('\r');
  if (restart != absl::string_view::npos) line.remove_prefix(restart + 1);
  sink(PrintableText(line));
  pending_.clear();
}

// Used by the queue's thread, except for waiting_bytes.
struct WorkerLog::File {
  File(std::string path, int fd, int64_t size_bytes, bool ends_line, int64_t limit_bytes)
      : path(std::move(path)),
        ends_line(ends_line),
        fd(fd),
        size_bytes(size_bytes),
        limit_bytes(limit_bytes > 0 ? limit_bytes : std::numeric_limits<int64_t>::max() / 2) {}
  ~File() { ::close(fd); }

  absl::Status Write(absl::string_view bytes) {
    waiting_bytes -= bytes.size();
    // Up to the end of the line with which the limit is reached.
    const auto room = static_cast<size_t>(std::max<int64_t>(limit_bytes - size_bytes, 1));
    const size_t newline = bytes.size() < room ? absl::string_view::npos : bytes.find('\n', room - 1);
    const size_t before = newline != absl::string_view::npos ? newline + 1 : bytes.size();
    absl::Status status = Append(bytes.substr(0, before));
    const bool is_full = newline != absl::string_view::npos || size_bytes >= limit_bytes + kMaxOverhangBytes;
    if (!status.ok() || !is_full) return status;
    status = BeginAgain();
    const absl::Status rest = Append(bytes.substr(before));
    return status.ok() ? rest : status;
  }

  absl::Status Append(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return Once(ErrnoError("write the log", path, errno));
      size_bytes += written;
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return absl::OkStatus();
  }

  // The present file stays in use if the next one cannot be made.
  absl::Status BeginAgain() {
    const bool replaces = PathExists(OlderPath(path));
    const absl::StatusOr<int> next = StartAgain(path);
    if (!next.ok()) return OnceEach(next.status(), is_kept_said);
    ::close(std::exchange(fd, *next));
    size_bytes = 0;
    if (!replaces) return absl::OkStatus();
    return OnceEach(EnvironmentError(absl::StrCat(
                        path, " has exceeded ", FormatBytes(limit_bytes),
                        " again; each time, the oldest part of the log is removed (launch.log_limit)")),
                    is_loss_said);
  }

  static absl::Status OnceEach(absl::Status status, bool& is_said) {
    return std::exchange(is_said, true) ? absl::OkStatus() : std::move(status);
  }

  absl::Status Once(const absl::Status& error) {
    if (std::exchange(is_said, true)) return absl::OkStatus();
    return absl::Status(error.code(), absl::StrCat(error.message(), "; its output appears only here"));
  }

  const std::string path;
  const bool ends_line;  // whether the log ended with a newline when it was opened
  int fd;
  int64_t size_bytes;
  const int64_t limit_bytes;
  bool is_said = false;
  bool is_loss_said = false;  // a part was removed
  bool is_kept_said = false;  // the log could not be begun again
  std::atomic<size_t> waiting_bytes{0};
};

absl::StatusOr<WorkerLog> WorkerLog::Open(const std::string& path, int64_t limit_bytes, DiskQueue& disk) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
  struct stat info;
  if (fd < 0 || ::fstat(fd, &info) != 0) return ErrnoError("open the log", path, errno);
  return WorkerLog(std::make_shared<File>(path, fd, info.st_size, EndsLine(path, info.st_size), limit_bytes),
                   disk);
}

void WorkerLog::BeginAttempt(absl::Time now) {
  if (file_->size_bytes == 0) return;
  Write(absl::StrCat(file_->ends_line ? "" : "\n", "-------- started again at ",
                     absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", now, absl::UTCTimeZone()), " --------\n"));
}

std::string WorkerLog::OlderPath(const std::string& path) { return path + ".1"; }

absl::StatusOr<int> WorkerLog::StartAgain(const std::string& path) {
  const std::string next_path = path + ".next";
  const int next = OpenNewFile(next_path, O_WRONLY | O_APPEND);
  if (next < 0) return ErrnoError("create", next_path, errno);
  // Somebody may have removed the present log.
  const bool is_renamed = ::rename(path.c_str(), OlderPath(path).c_str()) == 0 || errno == ENOENT;
  if (is_renamed && ::rename(next_path.c_str(), path.c_str()) == 0) return next;
  const absl::Status status = ErrnoError("rename the log", path, errno);
  ::close(next);
  ::unlink(next_path.c_str());
  return status;
}

void WorkerLog::Write(absl::string_view bytes) {
  const bool fits = file_->waiting_bytes + bytes.size() <= kMaxWaitingBytes;
  if (fits) file_->waiting_bytes += bytes.size();
  disk_->Post([file = file_, fits, text = std::string(fits ? bytes : "")] {
    return fits ? file->Write(text)
                : file->Once(EnvironmentError(absl::StrCat("the disk is too slow to write ", file->path)));
  });
}

void WorkerLog::Add(absl::string_view bytes, const LineSplitter::Sink& sink) {
  Write(bytes);
  recent_.append(bytes.data(), bytes.size());
  if (recent_.size() > 2 * kTailBytes) recent_.erase(0, recent_.size() - kTailBytes);
  splitter_.Add(bytes, sink);
}

std::string WorkerLog::Tail(int num_lines) const {
  std::deque<std::string> lines;
  const auto keep = [&](absl::string_view line) {
    lines.emplace_back(line.data(), line.size());
    if (static_cast<int>(lines.size()) > num_lines) lines.pop_front();
  };
  LineSplitter splitter;
  splitter.Add(recent_, keep);
  splitter.Flush(keep);
  std::string tail;
  for (const std::string& line : lines) absl::StrAppend(&tail, line, "\n");
  return tail;
}

}  // namespace trainctl::launcher
