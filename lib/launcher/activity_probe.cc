#include "launcher/activity_probe.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/files.h"

namespace trainctl::launcher {
namespace {

constexpr int kLooks = 5;
constexpr std::chrono::milliseconds kBetweenLooks{20};

// 'R', 'S', 'D', 'T', ... of proc(5); 0 when it is gone.
char StateOf(const std::string& stat_path) {
  const absl::StatusOr<std::string> text = ReadFile(stat_path);
  if (!text.ok()) return 0;
  const size_t end = text->rfind(") ");  // behind the name, which may hold anything
  return end == std::string::npos || end + 2 >= text->size() ? 0 : (*text)[end + 2];
}

}  // namespace

struct ActivityProbe::Answer {
  std::atomic<bool> is_there{false};
  std::atomic<rendezvous::Activity> activity{rendezvous::Activity::kBusy};
};

rendezvous::Activity LookAtThreads(pid_t pid) {
  bool is_stopped = false;
  for (int look = 0; look < kLooks; ++look) {
    if (look > 0) std::this_thread::sleep_for(kBetweenLooks);
    std::error_code error;
    for (std::filesystem::directory_iterator it(absl::StrCat("/proc/", pid, "/task"), error), end;
         !error && it != end; it.increment(error)) {
      const char state = StateOf(it->path().string() + "/stat");
      if (state == 'R' || state == 'D' || state == 't') return rendezvous::Activity::kBusy;
      if (state == 'T') is_stopped = true;
    }
  }
  return is_stopped ? rendezvous::Activity::kStopped : rendezvous::Activity::kIdle;
}

std::optional<rendezvous::Activity> ActivityProbe::Of(pid_t pid) {
  std::shared_ptr<Answer>& asked = asked_[pid];
  if (asked == nullptr) {
    asked = std::make_shared<Answer>();
    std::thread([pid, answer = asked] {
      answer->activity = LookAtThreads(pid);
      answer->is_there = true;
    }).detach();
    return std::nullopt;
  }
  if (!asked->is_there) return std::nullopt;
  const rendezvous::Activity activity = asked->activity;
  asked_.erase(pid);  // of now; the next question is one of its own
  return activity;
}

}  // namespace trainctl::launcher
