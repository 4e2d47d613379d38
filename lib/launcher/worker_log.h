// Handles a worker's output. All bytes go to the worker's log file, and lines go to a sink after being made
// safe to print. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "launcher/disk_queue.h"

namespace trainctl::launcher {

// Splits a byte stream into lines. A carriage return restarts the line, as on a terminal. A line longer than
// kMaxLineBytes is split into pieces.
class LineSplitter {
 public:
  static constexpr size_t kMaxLineBytes = 16 << 10;
  using Sink = std::function<void(absl::string_view line)>;

  void Add(absl::string_view bytes, const Sink& sink);
  // Emits the bytes that follow the last newline.
  void Flush(const Sink& sink);

 private:
  void Emit(const Sink& sink);
  std::string pending_;
};

class WorkerLog {
 public:
  // Opens a log that is written through `disk`. The log file is appended to, since it contains all attempts
  // of the rank. After the line that brings the file to `limit_bytes` or more, the file is renamed to
  // OlderPath and a new one is started. An older file of that name is replaced, which the queue reports once,
  // as an error. If `limit_bytes` is 0, the size is unlimited.
  static absl::StatusOr<WorkerLog> Open(const std::string& path, int64_t limit_bytes, DiskQueue& disk);
  static std::string OlderPath(const std::string& path);  // for example "rank-00000.log.1"
  // Renames the log to OlderPath, replacing any earlier file there, and returns a descriptor for a new, empty
  // log. On failure, the log is unchanged.
  static absl::StatusOr<int> StartAgain(const std::string& path);

  // Writes a line with the time that separates this attempt from earlier ones. Does nothing if the log was
  // empty when it was opened. Call it before Add. No sink receives the line, and Tail does not return it.
  void BeginAttempt(absl::Time now);
  // Writes `bytes` to the log and passes complete lines to `sink`. Never fails or blocks. If the file cannot
  // be written (full disk) or the disk is too slow, the queue reports one error, and the sink still receives
  // the bytes.
  void Add(absl::string_view bytes, const LineSplitter::Sink& sink);
  void Flush(const LineSplitter::Sink& sink) { splitter_.Flush(sink); }
  // Returns the last lines written since Open, in printable form, each terminated by a newline.
  std::string Tail(int num_lines) const;

 private:
  struct File;
  WorkerLog(std::shared_ptr<File> file, DiskQueue& disk) : file_(std::move(file)), disk_(&disk) {}
  void Write(absl::string_view bytes);
  std::shared_ptr<File> file_;  // shared with queued operations
  DiskQueue* disk_;
  LineSplitter splitter_;
  std::string recent_;  // last kTailBytes of output
};

}  // namespace trainctl::launcher
