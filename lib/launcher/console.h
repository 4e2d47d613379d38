// What the person sees of a job, taken off the launcher's hands: a slow or stopped terminal delays
// nothing but itself. Thread safe.
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

// Of a worker's output, printable, without newline.
struct WorkerLine {
  std::string node;  // empty: this machine, and no other has a part in the job
  int rank = -1;
  std::string text;
};
// "[rank 3] ", or "[node2 rank 3] ".
std::string PrefixOf(const WorkerLine& line);

// Shows a job. All calls come from one thread, so lines and progress are never mixed.
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  virtual void OnWorkerLine(const WorkerLine& line) = 0;
  // A line of the launcher's own ("rank 3 failed: ...; restarting").
  virtual void OnMessage(absl::string_view line) = 0;
  virtual void OnProgress(const JobProgress& progress) {}
};

// Prints "[rank 0] line" (see PrefixOf) and "trainctl: message", each with one write.
class FdObserver : public JobObserver {
 public:
  explicit FdObserver(int fd) : fd_(fd) {}
  void OnWorkerLine(const WorkerLine& line) override;
  void OnMessage(absl::string_view line) override;

 private:
  int fd_;
};

// Hands everything to the observer on a thread of its own. Holds at most kMaxQueuedBytes: beyond,
// lines are dropped and counted, and a message says so.
class Console {
 public:
  static constexpr size_t kMaxQueuedBytes = 8 << 20;

  // A null observer shows nothing.
  explicit Console(std::shared_ptr<JobObserver> observer);
  // Waits until all is shown, as long as the observer makes progress at least every `patience`.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void Show(WorkerLine line);
  void Message(absl::string_view line);
  void Report(const JobProgress& progress);  // the newest per rank replaces the one that waits
  void set_patience(absl::Duration patience) { patience_ = patience; }

 private:
  struct Queue;
  std::shared_ptr<Queue> queue_;  // shared with the thread, which may be stuck in the observer
  absl::Duration patience_ = absl::Seconds(5);
};

}  // namespace trainctl::launcher
