// Ends a process at a chosen moment, for the crash tests: the environment variable TRAINCTL_FAULT
// holds "<phase>:<n>:<target>:<rank>". When rank <rank> reaches <phase> for the n-th time (1-based),
// it kills with SIGKILL <target>: "worker" (itself) or "launcher" (its parent). It leaves a mark
// first, so that a test can tell that it struck, and a restarted worker that it must not again.
// Thread safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "absl/strings/string_view.h"

namespace trainctl::trainer {

class FaultInjector {
 public:
  FaultInjector(const std::string& fault, int rank, std::string mark_path);
  bool armed() const { return !phase_.empty(); }
  void Reach(absl::string_view phase);

 private:
  std::mutex mutex_;
  std::string phase_;
  bool kills_launcher_ = false;
  int64_t countdown_ = 0;
  std::string mark_path_;
};

}  // namespace trainctl::trainer
