#include "launcher/disk_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace trainctl::launcher {

struct DiskQueue::Shared {
  ~Shared() { ::close(done_fd); }

  void Run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return closing || !waiting.empty(); });
      if (waiting.empty()) return;
      const std::function<absl::Status()> work = std::move(waiting.front());
      lock.unlock();
      absl::Status status = work();
      lock.lock();
      waiting.pop_front();
      ++num_done;
      if (!status.ok()) errors.push_back(std::move(status));
      const uint64_t one = 1;
      (void)!::write(done_fd, &one, sizeof(one));
      changed.notify_all();
      if (closing) return;  // nobody waits for the rest
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<absl::Status()>> waiting;  // the first is under way
  std::vector<absl::Status> errors;
  uint64_t num_done = 0;
  bool closing = false;
  int done_fd = -1;
};

DiskQueue::DiskQueue() : shared_(std::make_shared<Shared>()) {
  shared_->done_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (shared_->done_fd < 0) throw std::system_error(errno, std::generic_category(), "event descriptor");
  std::thread([shared = shared_] { shared->Run(); }).detach();
}

DiskQueue::~DiskQueue() {
  std::lock_guard lock(shared_->mutex);
  shared_->closing = true;
  shared_->changed.notify_all();
}

void DiskQueue::Post(std::function<absl::Status()> work) {
  std::lock_guard lock(shared_->mutex);
  shared_->waiting.push_back(std::move(work));
  shared_->changed.notify_all();
}

int DiskQueue::fd() const { return shared_->done_fd; }

std::vector<absl::Status> DiskQueue::TakeErrors() {
  std::lock_guard lock(shared_->mutex);
  uint64_t count = 0;
  (void)!::read(shared_->done_fd, &count, sizeof(count));
  return std::exchange(shared_->errors, {});
}

bool DiskQueue::Wait(absl::Duration patience) {
  std::unique_lock lock(shared_->mutex);
  while (!shared_->waiting.empty()) {
    const uint64_t before = shared_->num_done;
    const bool goes_on = shared_->changed.wait_for(lock, absl::ToChronoMilliseconds(patience), [&] {
      return shared_->num_done != before || shared_->waiting.empty();
    });
    if (!goes_on) return false;
  }
  return true;
}

}  // namespace trainctl::launcher
