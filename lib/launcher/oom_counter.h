// Determines whether the kernel killed a process because memory ran out, from the OOM kill counters of the
// machine and of the control group that this process shares with its workers. Thread-safe.
//
//   const OomKills before = CountOomKills();
//   ...  // a worker is killed by SIGKILL
//   message += DescribeSigkill(before, CountOomKills());
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trainctl::launcher {

// Numbers of OOM kills; nullopt if the counter cannot be read on this machine.
struct OomKills {
  // Kills in this process's control group, whether they were caused by the group's own limit, a parent
  // group's, or the machine's. Kills in parent, child, and sibling groups are not counted.
  std::optional<int64_t> group;
  std::optional<int64_t> machine;  // kills in all groups since boot
};

// Reads the counters. Tests set `root`, which is prepended to /proc and to the mount points listed there.
OomKills CountOomKills(const std::string& root = "");

// Returns the likely reason for a SIGKILL that occurred between the two counts, to append to the signal's
// name.
std::string DescribeSigkill(const OomKills& before, const OomKills& after);

}  // namespace trainctl::launcher
