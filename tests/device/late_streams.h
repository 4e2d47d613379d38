// Streams of the test device: each has a thread of its own, which does what is queued later than it was
// queued, as a GPU does. A stream may be late: then it does nothing before somebody needs it (a wait of the
// host or of another stream), the worst that a device may do. So what was only right because everything was
// done at once comes out wrong, and does so every time.
//
// Thread safe.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

namespace trainctl::test_device {

class Queue {
 public:
  // `begin` is what its thread does first.
  Queue(bool late, std::function<void()> begin)
      : late_(late), thread_([this, begin = std::move(begin)] {
          begin();
          Run();
        }) {}
  // Does what is queued, then ends.
  ~Queue() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      queued_.notify_one();
    }
    thread_.join();
  }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void Add(std::function<void()> work) {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(work));
    ++added_;
    if (!late_) queued_.notify_one();
  }
  // How much has been added.
  uint64_t End() {
    std::lock_guard lock(mutex_);
    return added_;
  }
  bool IsDone(uint64_t position) {
    std::lock_guard lock(mutex_);
    return done_ >= position;
  }
  // Waits until the first `position` are done.
  void Reach(uint64_t position) {
    std::unique_lock lock(mutex_);
    if (done_ >= position) return;
    needed_ = std::max(needed_, position);
    if (late_) queued_.notify_one();
    const auto waited = waited_.insert(position);
    reached_.wait(lock, [&] { return done_ >= position; });
    waited_.erase(waited);
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      queued_.wait(lock, [&] { return stopping_ || (!tasks_.empty() && (!late_ || done_ < needed_)); });
      if (tasks_.empty()) return;
      {
        const std::function<void()> work = std::move(tasks_.front());
        tasks_.pop_front();
        lock.unlock();
        work();
      }
      lock.lock();
      ++done_;
      // Only whom it concerns is woken: there are a hundred tasks between two waits.
      if (!waited_.empty() && done_ >= *waited_.begin()) reached_.notify_all();
    }
  }

  const bool late_;
  std::mutex mutex_;
  std::condition_variable queued_;   // its thread waits
  std::condition_variable reached_;  // everybody else does
  std::deque<std::function<void()>> tasks_;
  std::multiset<uint64_t> waited_;  // positions that somebody waits for
  uint64_t added_ = 0, done_ = 0, needed_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

// A point in a stream.
struct Mark {
  std::shared_ptr<Queue> queue;
  uint64_t position = 0;

  static Mark BehindAllOf(const std::shared_ptr<Queue>& queue) { return {queue, queue->End()}; }
  void Reach() const { queue->Reach(position); }
  // What `other` gets from here on waits for it.
  void Hold(Queue& other) const {
    other.Add([mark = *this] { mark.Reach(); });
  }
};

}  // namespace trainctl::test_device
