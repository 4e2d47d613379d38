// Displays a job to the user. A separate thread writes the output, so a slow or stopped terminal does not
// delay the launcher. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/control_channel.h"

namespace trainctl::launcher {

struct JobProgress {
  int64_t generation = 0;
  int rank = 0;
  int num_restarts = 0;
  Progress progress;
};

// A line of a worker's output, in printable form and without the newline.
struct WorkerLine {
  std::string node;  // empty if this machine is the job's only node
  int rank = -1;
  std::string text;
};
// Returns the prefix of a worker's line: "[rank 3] " or "[node2 rank 3] ".
std::string PrefixOf(const WorkerLine& line);

// Displays a job. All methods are called from the same thread, so lines and progress reports never
// interleave.
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  virtual void OnWorkerLine(const WorkerLine& line) = 0;
  // Displays a line from the launcher itself, such as "rank 3 failed: ...; restarting".
  virtual void OnMessage(absl::string_view line) = 0;
  virtual void OnProgress(const JobProgress& progress) {}
};

// Prints worker lines as "[rank 0] line" (see PrefixOf) and messages as "trainctl: message", using a single
// write for each.
class FdObserver : public JobObserver {
 public:
  explicit FdObserver(int fd) : fd_(fd) {}
  void OnWorkerLine(const WorkerLine& line) override;
  void OnMessage(absl::string_view line) override;

 private:
  int fd_;
};

// Forwards everything to an observer on a separate thread. If more than kMaxQueuedBytes are queued, drops
// further worker lines and reports their number in a message.
class Console {
 public:
  static constexpr size_t kMaxQueuedBytes = 8 << 20;

  // If `observer` is null, displays nothing.
  explicit Console(std::shared_ptr<JobObserver> observer);
  // Waits until everything has been displayed, or until the observer makes no progress for `patience`.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Queue output for the thread. These do not block.
  void Show(WorkerLine line);
  void Message(absl::string_view line);
  void Report(const JobProgress& progress);  // replaces a queued report for the same rank
  void set_patience(absl::Duration patience) { patience_ = patience; }

 private:
  struct Queue;
  // Shared with the thread, which may be blocked in the observer.
  std::shared_ptr<Queue> queue_;
  absl::Duration patience_ = absl::Seconds(5);
};

}  // namespace trainctl::launcher
