// Finds a hung rank from signs of life that need no cooperation by that rank. A heartbeat shows that a
// process is alive, whereas the watchdog checks that its work makes progress. It has no side effects, but
// remembers what it has seen: the caller passes in the time and the boards. Not thread-safe.
//
// A rank counts as stalled for as long as nothing on its board changes. The time limit on a stall depends on
// the rank's phase. It starts at a default, becomes a large multiple of the longest pause once the phase has
// been observed often enough, and never exceeds the recipe's limit. Since every rank ends up waiting for the
// hung one, blame is determined separately: it goes to the rank that waits for no other.
//
// One look at n boards costs O(n log n).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace trainctl::rendezvous {

// A snapshot of a rank's board.
struct Standing {
  struct Group {
    int index = 0;  // same on every rank
    uint64_t entered = 0, left = 0;
    int waits_for = -1;  // rank whose message it waits for; -1 if it waits for no particular rank
    friend bool operator==(const Group&, const Group&) = default;
  };
  int64_t step = -1;  // current step, counted from 1; -1 before the first
  std::string phase;
  uint64_t beats = 0;
  // Whether the main thread waits for other ranks, directly or through another of its threads.
  bool is_waiting = false;
  std::vector<Group> groups;  // groups that the rank belongs to
  friend bool operator==(const Standing&, const Standing&) = default;
};

// The process's activity while its board does not change.
enum class Activity { kIdle, kBusy, kStopped };

struct WatchdogLimits {
  // Upper limit for every phase: launch.hang_timeout.
  absl::Duration most = absl::Minutes(10);
  // Limit for a rank that keeps others waiting for a message or a collective: launch.collective_timeout.
  absl::Duration collective = absl::Minutes(10);
  // Limit after a stop request: launch.stop_timeout.
  absl::Duration stop = absl::Seconds(30);
  // Limit for a phase that is not known yet.
  absl::Duration at_first = absl::Minutes(5);
  // Lower limit, which applies even to a short phase.
  absl::Duration floor = absl::Seconds(60);
  // Number of observed changes after which a phase is known.
  int samples = 20;
  // Limit for a known phase, as a multiple of its longest pause.
  double times_longest = 20;
};

struct Hang {
  int rank = -1;
  // For example, "stood still for 1m1s (reduce); ranks 0 and 2 waited for it".
  std::string description;
};

class Watchdog {
 public:
  explicit Watchdog(const WatchdogLimits& limits) : limits_(limits) {}

  // Returns the hung rank, if any. `boards` maps each rank to its board, without ranks that have left the job
  // or exited. Calls `activity` for each rank that is about to be blamed; a rank that is busy may use the
  // full time that the recipe allows.
  std::optional<Hang> Look(absl::Duration now, const std::map<int, Standing>& boards,
                           const std::function<Activity(int rank)>& activity);

  // Notes that a rank has given up waiting for another. From then on, launch.collective_timeout also limits a
  // rank that no other rank is seen to wait for.
  void NoteGivenUp() { is_given_up_ = true; }
  // Notes a stop request. From then on, the shorter `stop` limit applies, because a hung rank keeps the
  // others from saving.
  void NoteStop(absl::Duration now) { stop_since_ = std::min(stop_since_, now); }

 private:
  struct Seen {
    Standing standing;
    absl::Duration since;
  };
  struct Pauses {  // pauses of one phase, over all ranks
    int64_t changes = 0;
    absl::Duration longest;
  };
  using Boards = std::map<int, Standing>;

  void Note(absl::Duration now, const Boards& boards);
  // Whether the rank has been still for too long. `is_awaited` says whether another rank waits for it.
  bool IsOver(absl::Duration now, int rank, bool is_awaited, const Boards& boards) const;

  const WatchdogLimits limits_;
  std::map<int, Seen> seen_;
  std::map<std::string, Pauses> pauses_;
  bool is_given_up_ = false;
  absl::Duration stop_since_ = absl::InfiniteDuration();
};

// Returns the rank that the others wait for. This is a rank that does not wait itself; if all wait, it is a
// rank that waits for no other. In both cases the lowest such rank that another rank waits for is preferred,
// then the lowest one. A rank waits for those whose messages it names. If it names none but is waiting, it
// waits for every rank that has entered fewer operations of a group that both belong to. Returns nullopt if
// all ranks wait for each other.
std::optional<int> WhoIsAwaited(const std::map<int, Standing>& boards);

}  // namespace trainctl::rendezvous
