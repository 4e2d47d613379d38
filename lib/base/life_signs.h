// Life signs of a rank: what its threads are doing, in memory that another process can read at any time
// without their cooperation. The working threads write it without locks, and any number of readers may read
// it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace trainctl {

struct LifeSigns {
  static constexpr int kGroups = 64;  // maximum number of a communicator's groups that are recorded

  // Calls within one group of ranks, counted identically on all of its ranks.
  struct GroupCalls {
    std::atomic<uint64_t> entered;
    std::atomic<uint64_t> left;
    // 1 + the rank whose message this rank is waiting for; 0 if it is not waiting for a particular rank.
    std::atomic<int32_t> waits_for;
    std::atomic<int32_t> is_member;
  };

  // Incremented for every unit of work, such as an instruction, a batch, or part of a file.
  std::atomic<uint64_t> beats;
  // Number of nested waits of the main thread, either for other ranks or for a thread that may itself be
  // waiting for them.
  std::atomic<int32_t> main_waits;
  std::array<GroupCalls, kGroups> groups;
};

// Returns this process's life signs. They are in private memory until InstallLifeSigns is called.
// Thread-safe.
LifeSigns& ProcessLifeSigns();
// Makes ProcessLifeSigns return `signs`, which must live as long as the process. Call this from the main
// thread before work begins.
void InstallLifeSigns(LifeSigns* signs);

// Gives a sign of life, unless this thread works in the background.
void Beat();
// Marks this thread as a background thread, for example one that saves a checkpoint. Its work does not count
// as a life sign of the training threads.
void WorkInBackground();

// Marks the calling thread as waiting for other ranks for the lifetime of the object. Has an effect only on
// the main thread.
class WaitingForOthers {
 public:
  WaitingForOthers();
  ~WaitingForOthers();
  WaitingForOthers(const WaitingForOthers&) = delete;
  WaitingForOthers& operator=(const WaitingForOthers&) = delete;
};

}  // namespace trainctl
