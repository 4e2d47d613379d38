// Streams and events as the executor sees them. A stream is a thread that runs what is launched on it in
// order; an event is recorded when the work before it has returned. On the CPU that is when it is done; on a
// device the thread has a stream of the device, its work is queued there, and to wait for an event means to
// wait until it is recorded and then to hold back one's own stream of the device until it is reached. Launch
// never blocks; Wait blocks the caller. The first failure stops everything launched after it on any stream
// of the set.
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

// Events of one pass over a schedule, one per instruction. Thread safe.
class EventSet {
 public:
  explicit EventSet(const device::Device& device) : device_(device) {}
  void Reset(size_t num_events);
  void Record(int event);  // may fail, as Fail
  // Makes every Wait return `status` from now on; the first failure wins.
  void Fail(const absl::Status& status);
  absl::Status Wait(absl::Span<const int> events);
  // Blocks until `event` is recorded; the caller's stream of the device does not wait for it.
  absl::Status WaitUntilRecorded(int event);
  absl::Status status() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  const device::Device& device_;
  std::vector<bool> done_;
  std::vector<device::Event> events_;  // by event; none on the CPU, where done is done
  absl::Status failure_;
};

class Stream {
 public:
  static constexpr int kNoEvent = -1;

  Stream(const device::Device& device, EventSet& events);
  ~Stream();  // runs what was launched, then ends
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Runs `work` after the work before it and after `waits`; records `event`. `turn`: an event, or kNoEvent;
  // until it is recorded `work` is not called either, but does not wait for what it stands for: on a device
  // it says in which order streams queue, and no more.
  void Launch(std::vector<int> waits, int event, std::function<absl::Status()> work, int turn = kNoEvent);
  // Blocks until everything launched has been called; on a device its work is queued then.
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
