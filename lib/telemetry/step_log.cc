#include "telemetry/step_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/files.h"
#include "base/folder_sync.h"
#include "base/json.h"
#include "base/status.h"

namespace trainctl::telemetry {
namespace {

constexpr absl::string_view kStepKey = "{\"step\":";
constexpr size_t kReadBytes = size_t{1} << 20;
// Of a hundred thousand steps and more.
constexpr size_t kMostPendingBytes = size_t{64} << 20;

// The step of a complete line; -1 when it is not one of ours.
int64_t StepOf(absl::string_view line) {
  if (!absl::ConsumePrefix(&line, kStepKey) || !absl::EndsWith(line, "}")) return -1;
  int64_t step = -1;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step);
  const bool ends_well = error == std::errc() && (*end == ',' || *end == '}');
  return ends_well && step >= 0 ? step : -1;
}

// Finds where to cut: the end of the last line to keep, and its step.
class Scan {
 public:
  Scan(absl::string_view path, int64_t last_step_to_keep) : path_(path), limit_(last_step_to_keep) {}

  // One complete line without its newline, of `num_bytes` with it.
  absl::Status Line(absl::string_view line, size_t num_bytes) {
    ++line_number_;
    const int64_t step = StepOf(line);
    if (step > last_step_ && step <= limit_) {
      if (bad_line_ != 0) {
        return BadDataError(absl::StrCat(path_, ":", bad_line_,
                                         ": damaged: not a line of this log, and step ", step,
                                         " follows; move the file away to continue without it"));
      }
      last_step_ = step;
      keep_bytes_ += static_cast<int64_t>(num_bytes);
      if (beyond_) return BadDataError(absl::StrCat(path_, ":", line_number_, ": steps do not rise"));
      return absl::OkStatus();
    }
    // A later step is cut off. Anything else is damage if a line to keep follows, else the torn end
    // of a crash.
    if (step > limit_) {
      beyond_ = true;
    } else if (bad_line_ == 0) {
      bad_line_ = line_number_;
    }
    return absl::OkStatus();
  }

  int64_t keep_bytes() const { return keep_bytes_; }
  int64_t last_step() const { return last_step_; }

 private:
  absl::string_view path_;
  int64_t limit_;
  int64_t line_number_ = 0;
  int64_t keep_bytes_ = 0;
  int64_t last_step_ = -1;
  int64_t bad_line_ = 0;
  bool beyond_ = false;
};

absl::Status ScanFile(int fd, const std::string& path, Scan& scan) {
  std::string pending;  // begins at a line's start
  std::string buffer(kReadBytes, '\0');
  while (true) {
    const ssize_t count = ::read(fd, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoError("read", path, errno);
    if (count == 0) return absl::OkStatus();  // `pending` is a torn line
    pending.append(buffer.data(), static_cast<size_t>(count));
    size_t begin = 0;
    for (size_t end; (end = pending.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const absl::string_view line = absl::string_view(pending).substr(begin, end - begin);
      TRAINCTL_RETURN_IF_ERROR(scan.Line(line, line.size() + 1));
    }
    pending.erase(0, begin);
    if (pending.size() > kMaxLineBytes) {
      return BadDataError(absl::StrCat(path, ": has a line of more than ", kMaxLineBytes,
                                       " bytes, so it is not a log of steps; move it away"));
    }
  }
}

// The first `count` bytes.
absl::Status CopyBytes(int from, int to, int64_t count, const std::string& path) {
  std::string buffer(kReadBytes, '\0');
  for (int64_t at = 0; at < count;) {
    const size_t wanted = std::min(buffer.size(), static_cast<size_t>(count - at));
    const ssize_t num_read = ::pread(from, buffer.data(), wanted, at);
    if (num_read < 0 && errno == EINTR) continue;
    if (num_read <= 0) return ErrnoError("copy to", path, num_read < 0 ? errno : EIO);
    for (ssize_t done = 0; done < num_read;) {
      const ssize_t written = ::write(to, buffer.data() + done, static_cast<size_t>(num_read - done));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return ErrnoError("write", path, errno);
      done += written;
    }
    at += num_read;
  }
  return absl::OkStatus();
}

}  // namespace

std::string JsonNumber(double value) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  std::array<char, 32> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  TRAINCTL_CHECK(error == std::errc());
  return std::string(digits.data(), end);
}

std::optional<double> NumberOfJson(const nlohmann::ordered_json& value) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (value.is_number()) return value.get<double>();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (value == "inf") return kInfinity;
  if (value == "-inf") return -kInfinity;
  return std::nullopt;
}

std::string JsonQuoted(absl::string_view text) { return FormatJson(Json(std::string(text))); }

absl::StatusOr<StepLog> StepLog::Open(const std::string& path, int64_t last_step_to_keep) {
  StepLog log;
  log.path_ = path;
  const int former = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (former < 0 && errno != ENOENT) return ErrnoError("open", path, errno);
  const absl::Status status = log.Follow(former, last_step_to_keep);
  if (former >= 0) ::close(former);
  if (!status.ok()) return status;
  return log;
}

// `former`: -1: there is none.
absl::Status StepLog::Follow(int former, int64_t last_step_to_keep) {
  if (former >= 0 && last_step_to_keep >= 0) {
    Scan scan(path_, last_step_to_keep);
    TRAINCTL_RETURN_IF_ERROR(ScanFile(former, path_, scan));
    size_bytes_ = scan.keep_bytes();
    last_step_ = scan.last_step();
  }
  // A name that only the process which may write uses; what a killed one left of it is of no use.
  const std::string next = path_ + ".next";
  fd_ = OpenNewFile(next, O_RDWR | O_APPEND);
  if (fd_ < 0) return ErrnoError("create", next, errno);
  absl::Status status = CopyBytes(former, fd_, size_bytes_, next);
  if (status.ok() && SyncOpenFileData(fd_) != 0) status = ErrnoError("sync", next, errno);
  if (status.ok() && ::rename(next.c_str(), path_.c_str()) != 0) {
    status = ErrnoError("rename to", path_, errno);
  }
  if (!status.ok()) ::unlink(next.c_str());
  return status;
}

StepLog::StepLog(StepLog&& other) noexcept { *this = std::move(other); }

StepLog& StepLog::operator=(StepLog&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(last_step_, other.last_step_);
  std::swap(mutex_, other.mutex_);
  std::swap(pending_, other.pending_);
  std::swap(trouble_, other.trouble_);
  return *this;
}

StepLog::~StepLog() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status StepLog::Append(int64_t step, absl::string_view fields) {
  if (step <= last_step_) {
    return InternalError(absl::StrCat(path_, ": step ", step, " logged after step ", last_step_));
  }
  std::lock_guard lock(*mutex_);
  absl::StrAppend(&pending_, kStepKey, step, fields.empty() ? "" : ",", fields, "}\n");
  last_step_ = step;
  trouble_ = WritePending();
  if (!trouble_.ok() && pending_.size() > kMostPendingBytes) return trouble_;
  return absl::OkStatus();
}

// All or nothing.
absl::Status StepLog::WritePending() {
  if (pending_.empty()) return absl::OkStatus();
  ssize_t written;
  do {
    written = ::write(fd_, pending_.data(), pending_.size());
  } while (written < 0 && errno == EINTR);
  if (written != static_cast<ssize_t>(pending_.size())) {
    const int error_number = written < 0 ? errno : ENOSPC;
    if (written > 0 && ::ftruncate(fd_, size_bytes_) != 0) return ErrnoError("cut back", path_, errno);
    return ErrnoError("write", path_, error_number);
  }
  size_bytes_ += static_cast<int64_t>(pending_.size());
  pending_.clear();
  return absl::OkStatus();
}

absl::Status StepLog::Sync() {
  {
    std::lock_guard lock(*mutex_);
    trouble_ = WritePending();
    TRAINCTL_RETURN_IF_ERROR(trouble_);
  }
  // Whoever appends does not wait for the disk.
  return SyncOpenFileData(fd_) == 0 ? absl::OkStatus() : ErrnoError("sync", path_, errno);
}

}  // namespace trainctl::telemetry
