#include "launcher/worker_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "launcher/printable_text.h"

namespace trainctl::launcher {
namespace {

constexpr size_t kTailBytes = 64 << 10;

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

absl::StatusOr<WorkerLog> WorkerLog::Open(const std::string& path) {
  WorkerLog log;
  log.path_ = path;
  log.fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log.fd_ < 0) return ErrnoError("open the log", path, errno);
  return log;
}

WorkerLog::WorkerLog(WorkerLog&& other) noexcept { *this = std::move(other); }

WorkerLog& WorkerLog::operator=(WorkerLog&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(error_, other.error_);
  std::swap(splitter_, other.splitter_);
  std::swap(recent_, other.recent_);
  return *this;
}

WorkerLog::~WorkerLog() {
  if (fd_ >= 0) ::close(fd_);
}

void WorkerLog::Add(absl::string_view bytes, const LineSplitter::Sink& sink) {
  absl::string_view rest = bytes;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      if (error_.ok()) error_ = ErrnoError("write the log", path_, errno);
      break;
    }
    rest.remove_prefix(static_cast<size_t>(written));
  }
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
