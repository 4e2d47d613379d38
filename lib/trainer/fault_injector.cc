#include "trainer/fault_injector.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/files.h"

namespace trainctl::trainer {

FaultInjector::FaultInjector(const std::string& fault, int rank, std::string mark_path)
    : mark_path_(std::move(mark_path)) {
  const std::vector<std::string> parts = absl::StrSplit(fault, ':');
  int fault_rank = 0;
  if (parts.size() != 4 || !absl::SimpleAtoi(parts[1], &countdown_) ||
      !absl::SimpleAtoi(parts[3], &fault_rank))
    return;
  if (fault_rank != rank || PathExists(mark_path_)) return;
  kills_launcher_ = parts[2] == "launcher";
  phase_ = parts[0];
}

void FaultInjector::Reach(absl::string_view phase) {
  if (!armed()) return;
  std::lock_guard lock(mutex_);
  if (phase != phase_ || --countdown_ != 0) return;
  const absl::Status marked = WriteFileAtomic(mark_path_, phase_);
  std::fprintf(stderr, "fault injected at %s%s\n", phase_.c_str(), marked.ok() ? "" : " (no mark)");
  std::fflush(nullptr);
  kill(kills_launcher_ ? getppid() : getpid(), SIGKILL);
  // The launcher's death must end this process too; until it does, the moment lasts.
  if (kills_launcher_) pause();
}

}  // namespace trainctl::trainer
