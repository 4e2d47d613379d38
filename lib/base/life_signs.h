// Signs of life of one rank: what its threads do right now, in memory that another process may read at any
// moment without their help. Written lock-free by the threads that do the work; any readers.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace trainctl {

struct LifeSigns {
  static constexpr int kGroups = 64;  // of the first so many groups of a communicator

  // Calls of one group of ranks, counted alike on every rank of it.
  struct GroupCalls {
    std::atomic<uint64_t> entered;
    std::atomic<uint64_t> left;
    std::atomic<int32_t>
        waits_for;  // 1 + the rank whose message this one waits for; 0: for none in particular
    std::atomic<int32_t> is_member;
  };

  // Grows with every piece of work: an instruction, a batch, a part of a file.
  std::atomic<uint64_t> beats;
  // How many waits the main thread is in: for others, or for a thread of its own that may wait for them.
  std::atomic<int32_t> main_waits;
  std::array<GroupCalls, kGroups> groups;
};

// This process's; memory of its own until Install. Thread safe.
LifeSigns& ProcessLifeSigns();
// Before the work begins, by its main thread; `signs` lives as long as the process.
void InstallLifeSigns(LifeSigns* signs);

// A sign of life, unless this thread works in the background.
void Beat();
// From now on this thread works beside the others (saves, say): it is no sign that their work goes on.
void WorkInBackground();

// While it exists, this thread waits for others.
class WaitingForOthers {
 public:
  WaitingForOthers();
  ~WaitingForOthers();
  WaitingForOthers(const WaitingForOthers&) = delete;
  WaitingForOthers& operator=(const WaitingForOthers&) = delete;
};

}  // namespace trainctl
