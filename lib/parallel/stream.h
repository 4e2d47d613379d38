// The executor's streams and events. A stream is a thread that runs the work launched on it in order. An
// event is recorded when its work has returned. On the CPU the work is then complete.
//
// On a device each thread has its own device stream, on which its work is only queued. There, a thread that
// waits for an event waits until it is recorded. It then holds back its own device stream until the work
// before the event is complete. Launch never blocks; Wait blocks the caller. After the first failure no
// further work starts on any stream of the EventSet.
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
#include "device/device.h"

namespace trainctl::parallel {

// The events of one pass over a program, one per instruction. Thread-safe.
class EventSet {
 public:
  explicit EventSet(const device::Device& device) : device_(device) {}
  void Reset(size_t num_events);  // clears all events and the failure
  void Record(int event);         // a failure of the device counts as Fail
  // Makes every Wait return `status` from now on. Only the first failure is kept.
  void Fail(const absl::Status& status);
  // Blocks until all `events` are recorded, and holds back the calling thread's device stream until their
  // work is complete. If there is a failure, returns it at once.
  absl::Status Wait(absl::Span<const int> events);
  // Blocks until `event` is recorded, without holding back the calling thread's device stream.
  absl::Status WaitUntilRecorded(int event);
  absl::Status status() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  const device::Device& device_;
  std::vector<bool> done_;
  std::vector<device::Event> events_;  // indexed by event; empty on the CPU
  absl::Status failure_;
};

class Stream {
 public:
  static constexpr int kNoEvent = -1;

  Stream(const device::Device& device, EventSet& events);
  ~Stream();  // finishes the launched work, then ends the thread
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Queues `work` after all work launched before it and after the events `waits`, and records `event` when it
  // has returned. `turn` is an event or kNoEvent. `work` is also not called before `turn` is recorded, but
  // does not wait for the completion of that event's work. On a device `turn` thus only fixes the order in
  // which streams queue.
  void Launch(std::vector<int> waits, int event, std::function<absl::Status()> work, int turn = kNoEvent);
  // Blocks until everything launched has returned. On a device the work is then queued, not necessarily
  // complete.
  void Drain();

 private:
  struct Task {
    std::vector<int> waits;
    int event;
    std::function<absl::Status()> work;
    int turn;
  };
  void Run();

  const device::Device& device_;
  EventSet& events_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace trainctl::parallel
