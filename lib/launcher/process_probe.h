// Reads /proc entries of a node's workers. A read may be slow or block in the kernel, so each one runs in its
// own thread and its result is returned when it is ready. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace trainctl::launcher {

template <typename T>
class ProcessProbe {
 public:
  struct Seen {
    int worker = -1;
    T value;
  };

  explicit ProcessProbe(T (*look)(pid_t pid)) : look_(look) {}

  // Starts a read of process `pid` for this worker, unless one is already in progress.
  void Ask(int worker, pid_t pid) {
    std::shared_ptr<Answer>& asked = asked_[worker];
    if (asked != nullptr) return;
    asked = std::make_shared<Answer>();
    try {
      std::thread([pid, look = look_, answer = asked] {
        answer->value = look(pid);
        answer->is_there = true;
      }).detach();
    } catch (const std::system_error&) {
      asked_.erase(worker);  // no thread available now; a later call may succeed
    }
  }
  // Returns a result that is ready, or nullopt if there is none. Each result is returned only once.
  std::optional<Seen> Take() {
    for (auto it = asked_.begin(); it != asked_.end(); ++it) {
      if (!it->second->is_there) continue;
      Seen seen{it->first, std::move(it->second->value)};
      asked_.erase(it);
      return seen;
    }
    return std::nullopt;
  }
  // Discards the results of all reads in progress.
  void Forget() { asked_.clear(); }

 private:
  struct Answer {
    std::atomic<bool> is_there{false};
    T value = {};
  };
  T (*const look_)(pid_t pid);
  std::map<int, std::shared_ptr<Answer>> asked_;  // keyed by worker
};

}  // namespace trainctl::launcher
