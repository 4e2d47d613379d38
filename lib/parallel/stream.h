// Streams and events: the device interface that the executor sees. This is the CPU's: a stream is a
// thread that runs what is launched on it in order; an event is done when the work it was recorded
// after is done. Launch never blocks; Wait blocks the caller. The first failure stops everything
// launched after it on any stream of the set.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace trainctl::parallel {

// Events of one pass over a schedule, one per instruction. Thread safe.
class EventSet {
 public:
  void Reset(size_t num_events);
  void Record(int event);
  // Makes every Wait return `status` from now on; the first failure wins.
  void Fail(const absl::Status& status);
  absl::Status Wait(absl::Span<const int> events);
  absl::Status status() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> done_;
  absl::Status failure_;
};

class Stream {
 public:
  explicit Stream(EventSet& events);
  ~Stream();  // runs what was launched, then ends
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Runs `work` after the work before it and after `waits`; records `event`.
  void Launch(std::vector<int> waits, int event, std::function<absl::Status()> work);
  // Blocks until everything launched has ended.
  void Drain();

 private:
  struct Task {
    std::vector<int> waits;
    int event;
    std::function<absl::Status()> work;
  };
  void Run();

  EventSet& events_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace trainctl::parallel
