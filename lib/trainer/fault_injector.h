// Kills a process at a chosen moment, for the crash tests. The environment variable TRAINCTL_FAULT contains
// "<phase>:<n>:<target>:<rank>". When rank <rank> reaches <phase> for the n-th time (counted from 1), it
// sends SIGKILL to <target>: "worker" is the process itself and "launcher" is its parent. It first creates a
// mark file, which shows a test that the fault occurred and prevents a restarted worker from repeating it.
// Thread-safe.
//
//   TRAINCTL_FAULT=save:2:worker:0 trainctl launch recipe.toml
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "absl/strings/string_view.h"

namespace trainctl::trainer {

class FaultInjector {
 public:
  // `fault` is the value of TRAINCTL_FAULT. There is no fault if `fault` does not have the form above, if it
  // is for another rank, or if the file at `mark_path` exists.
  FaultInjector(const std::string& fault, int rank, std::string mark_path);
  // Whether this rank has a fault.
  bool armed() const { return !phase_.empty(); }
  // Notes that this rank has reached `phase`, and kills the target if the fault is due.
  void Reach(absl::string_view phase);

 private:
  std::mutex mutex_;
  std::string phase_;
  bool kills_launcher_ = false;
  int64_t countdown_ = 0;
  std::string mark_path_;
};

}  // namespace trainctl::trainer
