// Whether a process that got SIGKILL was ended by the kernel for lack of memory: read from the counters of
// this process's own control group, which its workers share, and of the machine. Thread safe.
//
//   const OomKills before = CountOomKills();
//   ...  // a worker is killed by SIGKILL
//   message += DescribeSigkill(before, CountOomKills());
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trainctl::launcher {

// Processes that the kernel has ended for lack of memory; nullopt: cannot be read here.
struct OomKills {
  // Of this process's control group alone, whichever limit was met: that of the group, of one above it, or
  // the machine's. Kills in groups above, below and next to it are others'.
  std::optional<int64_t> group;
  std::optional<int64_t> machine;  // since it was started, in any group
};

// `root` is put before /proc and the mount points that it names, for tests.
OomKills CountOomKills(const std::string& root = "");

// Why a worker got SIGKILL between the two counts, to be appended to the words for the signal.
std::string DescribeSigkill(const OomKills& before, const OomKills& after);

}  // namespace trainctl::launcher
