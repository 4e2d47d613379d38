// What /proc says of a node's workers. A look may take a while, or wait for the kernel, so each is taken in a
// thread of its own and handed on when it is there. Not thread safe.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
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

  // Begins a look at this worker, whose process is `pid`, unless one is under way.
  void Ask(int worker, pid_t pid) {
    std::shared_ptr<Answer>& asked = asked_[worker];
    if (asked != nullptr) return;
    asked = std::make_shared<Answer>();
    std::thread([pid, look = look_, answer = asked] {
      answer->value = look(pid);
      answer->is_there = true;
    }).detach();
  }
  // The next look that is there, once; nullopt while there is none.
  std::optional<Seen> Take() {
    for (auto it = asked_.begin(); it != asked_.end(); ++it) {
      if (!it->second->is_there) continue;
      Seen seen{it->first, std::move(it->second->value)};
      asked_.erase(it);
      return seen;
    }
    return std::nullopt;
  }
  // Looks under way are of no account any more.
  void Forget() { asked_.clear(); }

 private:
  struct Answer {
    std::atomic<bool> is_there{false};
    T value = {};
  };
  T (*const look_)(pid_t pid);
  std::map<int, std::shared_ptr<Answer>> asked_;  // by worker
};

}  // namespace trainctl::launcher
