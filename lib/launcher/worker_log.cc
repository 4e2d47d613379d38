#include "launcher/worker_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "launcher/printable_text.h"

namespace trainctl::launcher {
namespace {

constexpr size_t kTailBytes = 64 << 10;
constexpr size_t kMaxWaitingBytes = 64 << 20;  // of one worker

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

// Used by the queue's thread, but for what waits.
struct WorkerLog::File {
  File(std::string path, int fd) : path(std::move(path)), fd(fd) {}
  ~File() { ::close(fd); }

  absl::Status Write(absl::string_view bytes) {
    waiting_bytes -= bytes.size();
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return Once(ErrnoError("write the log", path, errno));
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return absl::OkStatus();
  }

  absl::Status Once(const absl::Status& error) {
    if (std::exchange(is_said, true)) return absl::OkStatus();
    return absl::Status(error.code(), absl::StrCat(error.message(), "; its output is only shown here"));
  }

  const std::string path;
  const int fd;
  bool is_said = false;
  std::atomic<size_t> waiting_bytes{0};
};

absl::StatusOr<WorkerLog> WorkerLog::Open(const std::string& path, DiskQueue& disk) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoError("open the log", path, errno);
  return WorkerLog(std::make_shared<File>(path, fd), disk);
}

void WorkerLog::Add(absl::string_view bytes, const LineSplitter::Sink& sink) {
  const bool fits = file_->waiting_bytes + bytes.size() <= kMaxWaitingBytes;
  if (fits) file_->waiting_bytes += bytes.size();
  disk_->Post([file = file_, fits, text = std::string(fits ? bytes : "")] {
    return fits ? file->Write(text)
                : file->Once(EnvironmentError(absl::StrCat("the disk does not keep up with ", file->path)));
  });
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
