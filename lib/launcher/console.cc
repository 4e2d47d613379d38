#include "launcher/console.h"

#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace trainctl::launcher {
namespace {

void WriteLine(int fd, const std::string& line) {
  absl::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return;  // the terminal is gone; the logs have it
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

std::string PrefixOf(const WorkerLine& line) {
  return absl::StrCat("[", line.node, line.node.empty() ? "" : " ", "rank ", line.rank, "] ");
}

void FdObserver::OnWorkerLine(const WorkerLine& line) {
  WriteLine(fd_, absl::StrCat(PrefixOf(line), line.text, "\n"));
}

void FdObserver::OnMessage(absl::string_view line) { WriteLine(fd_, absl::StrCat("trainctl: ", line, "\n")); }

struct Console::Queue {
  enum class Kind { kWorkerLine, kMessage, kProgress };
  struct Item {
    Kind kind;
    WorkerLine line;  // of a message: its text alone
    JobProgress progress;
  };

  void Push(Item item) {
    std::lock_guard lock(mutex);
    if (item.kind == Kind::kWorkerLine && queued_bytes + item.line.text.size() > kMaxQueuedBytes) {
      ++num_dropped;
      return;
    }
    if (item.kind == Kind::kProgress) {
      for (Item& waiting : items) {
        if (waiting.kind == Kind::kProgress && waiting.progress.rank == item.progress.rank) {
          waiting = std::move(item);
          return;
        }
      }
    }
    queued_bytes += item.line.text.size();
    items.push_back(std::move(item));
    changed.notify_all();
  }

  void Run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return closing || !items.empty(); });
      if (items.empty() && num_dropped == 0) break;
      std::deque<Item> batch = std::exchange(items, {});
      if (const int64_t dropped = std::exchange(num_dropped, 0); dropped > 0) {
        batch.push_back(
            {Kind::kMessage,
             {.text = absl::StrCat(
                  dropped, " lines were not shown because the terminal was too slow; the logs have them")},
             {}});
      }
      for (const Item& item : batch) {
        queued_bytes -= std::min(queued_bytes, item.line.text.size());
        lock.unlock();
        Show(item);
        lock.lock();
        ++num_shown;
        changed.notify_all();
      }
    }
    done = true;
    changed.notify_all();
  }

  void Show(const Item& item) {
    switch (item.kind) {
      case Kind::kWorkerLine:
        observer->OnWorkerLine(item.line);
        break;
      case Kind::kMessage:
        observer->OnMessage(item.line.text);
        break;
      case Kind::kProgress:
        observer->OnProgress(item.progress);
        break;
    }
  }

  std::shared_ptr<JobObserver> observer;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Item> items;
  size_t queued_bytes = 0;
  int64_t num_dropped = 0;
  int64_t num_shown = 0;
  bool closing = false;
  bool done = false;
};

Console::Console(std::shared_ptr<JobObserver> observer) {
  if (observer == nullptr) return;
  queue_ = std::make_shared<Queue>();
  queue_->observer = std::move(observer);
  std::thread([queue = queue_] { queue->Run(); }).detach();
}

Console::~Console() {
  if (queue_ == nullptr) return;
  std::unique_lock lock(queue_->mutex);
  queue_->closing = true;
  queue_->changed.notify_all();
  while (!queue_->done) {
    const int64_t shown = queue_->num_shown;
    const bool moved = queue_->changed.wait_for(lock, absl::ToChronoMilliseconds(patience_),
                                                [&] { return queue_->done || queue_->num_shown != shown; });
    if (!moved) return;  // the thread keeps the queue and ends with the process
  }
}

void Console::Show(WorkerLine line) {
  if (queue_ != nullptr) queue_->Push({Queue::Kind::kWorkerLine, std::move(line), {}});
}

void Console::Message(absl::string_view line) {
  if (queue_ != nullptr) queue_->Push({Queue::Kind::kMessage, {.text = std::string(line)}, {}});
}

void Console::Report(const JobProgress& progress) {
  if (queue_ != nullptr) queue_->Push({Queue::Kind::kProgress, {}, progress});
}

}  // namespace trainctl::launcher
