// What a worker prints: every byte goes to its log file; lines, made safe to print, go to a sink.
// Not thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/disk_queue.h"

namespace trainctl::launcher {

// Cuts a byte stream into lines. A carriage return starts the line anew, as on a terminal; a line
// longer than kMaxLineBytes comes in pieces.
class LineSplitter {
 public:
  static constexpr size_t kMaxLineBytes = 16 << 10;
  using Sink = std::function<void(absl::string_view line)>;

  void Add(absl::string_view bytes, const Sink& sink);
  // What came after the last newline.
  void Flush(const Sink& sink);

 private:
  void Emit(const Sink& sink);
  std::string pending_;
};

class WorkerLog {
 public:
  // Appends to the file, by way of `disk`: it holds all attempts of the rank. After the line that brings the
  // file to `limit_bytes` or more, it is renamed to OlderPath and a new file is started. An existing file of
  // that name is removed, and the queue reports this once as an error. If `limit_bytes` is 0, the size is not
  // limited.
  static absl::StatusOr<WorkerLog> Open(const std::string& path, int64_t limit_bytes, DiskQueue& disk);
  static std::string OlderPath(const std::string& path);  // "rank-00000.log.1"
  // Renames the log to OlderPath, whose former file is removed, and returns a descriptor of an empty new one.
  // If it cannot, the log stays as it is.
  static absl::StatusOr<int> StartAgain(const std::string& path);

  // Never fails, never waits: when the file cannot be written (disk full) or the disk does not keep up, an
  // error of the queue says so once, and the bytes still reach the sink.
  void Add(absl::string_view bytes, const LineSplitter::Sink& sink);
  void Flush(const LineSplitter::Sink& sink) { splitter_.Flush(sink); }
  // The last lines of what was written since Open, printable, each ending in a newline.
  std::string Tail(int num_lines) const;

 private:
  struct File;
  WorkerLog(std::shared_ptr<File> file, DiskQueue& disk) : file_(std::move(file)), disk_(&disk) {}
  std::shared_ptr<File> file_;  // shared with what waits in the queue
  DiskQueue* disk_;
  LineSplitter splitter_;
  std::string recent_;  // the last kTailBytes of output
};

}  // namespace trainctl::launcher
