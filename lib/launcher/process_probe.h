// What /proc says of processes. A look may take a while, or wait for the kernel: it is taken in a thread of
// its own, and asked for again until it is there. Not thread safe.
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
  explicit ProcessProbe(T (*look)(pid_t pid)) : look_(look) {}

  // The first call begins a look; nullopt until it is there.
  std::optional<T> Of(pid_t pid) {
    std::shared_ptr<Answer>& asked = asked_[pid];
    if (asked == nullptr) {
      asked = std::make_shared<Answer>();
      std::thread([pid, look = look_, answer = asked] {
        answer->value = look(pid);
        answer->is_there = true;
      }).detach();
      return std::nullopt;
    }
    if (!asked->is_there) return std::nullopt;
    T value = std::move(asked->value);
    asked_.erase(pid);  // of now; the next question is one of its own
    return value;
  }

 private:
  struct Answer {
    std::atomic<bool> is_there{false};
    T value = {};
  };
  T (*const look_)(pid_t pid);
  std::map<pid_t, std::shared_ptr<Answer>> asked_;
};

}  // namespace trainctl::launcher
