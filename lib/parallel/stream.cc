#include "parallel/stream.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/life_signs.h"
#include "device/error_text.h"

namespace trainctl::parallel {

namespace {

// A device tells of what went wrong earlier in whatever it is asked next, so everything here may throw.
template <typename Work>
absl::Status Guarded(const Work& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return device::StatusOf(error);
  }
}

}  // namespace

void EventSet::Reset(size_t num_events) {
  std::lock_guard lock(mutex_);
  done_.assign(num_events, false);
  while (!device_.is_cpu() && events_.size() < num_events) events_.emplace_back(device_);
  failure_ = absl::OkStatus();
}

void EventSet::Record(int event) {
  std::lock_guard lock(mutex_);
  if (!events_.empty()) {
    const absl::Status status = Guarded([&] {
      events_[static_cast<size_t>(event)].Record();
      return absl::OkStatus();
    });
    if (failure_.ok()) failure_ = status;
  }
  done_[static_cast<size_t>(event)] = true;
  changed_.notify_all();
}

void EventSet::Fail(const absl::Status& status) {
  std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = status;
  changed_.notify_all();
}

absl::Status EventSet::Wait(absl::Span<const int> events) {
  const WaitingForOthers waiting;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return !failure_.ok() || std::all_of(events.begin(), events.end(),
                                         [&](int event) { return done_[static_cast<size_t>(event)]; });
  });
  if (failure_.ok() && !events_.empty()) {
    failure_ = Guarded([&] {
      for (int event : events) events_[static_cast<size_t>(event)].HoldStream();
      return absl::OkStatus();
    });
    if (!failure_.ok()) changed_.notify_all();
  }
  return failure_;
}

absl::Status EventSet::WaitUntilRecorded(int event) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !failure_.ok() || done_[static_cast<size_t>(event)]; });
  return failure_;
}

absl::Status EventSet::status() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

Stream::Stream(const device::Device& device, EventSet& events)
    : device_(device), events_(events), thread_([this] { Run(); }) {}

Stream::~Stream() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Stream::Launch(std::vector<int> waits, int event, std::function<absl::Status()> work, int turn) {
  std::lock_guard lock(mutex_);
  tasks_.push_back({std::move(waits), event, std::move(work), turn});
  changed_.notify_all();
}

void Stream::Drain() {
  const WaitingForOthers waiting;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return tasks_.empty() && !busy_; });
}

void Stream::Run() {
  device_.UseNewStream();
  while (true) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      busy_ = false;
      changed_.notify_all();
      changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      busy_ = true;
    }
    absl::Status status = events_.Wait(task.waits);
    if (status.ok() && task.turn != kNoEvent) status = events_.WaitUntilRecorded(task.turn);
    if (status.ok()) status = Guarded(task.work);
    Beat();
    if (status.ok()) {
      if (task.event != kNoEvent) events_.Record(task.event);
    } else {
      events_.Fail(status);
    }
  }
}

}  // namespace trainctl::parallel
