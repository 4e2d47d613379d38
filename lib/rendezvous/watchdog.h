// Which rank stands still, from signs of life that need no help of the one that hangs. A heartbeat tells that
// a process lives; this tells that its work goes on. Pure but for what it remembers: the caller hands in the
// time and what the boards say. Not thread safe.
//
// A rank stands still when nothing on its board changes. It may do so as long as its phase allows: at first a
// default, and once the phase has been seen long enough, many times its longest pause, but never longer than
// the recipe says. Who is to blame is another question, since all ranks wait for the one that hangs: the rank
// that waits for nobody.
//
// A look at n boards costs O(n log n).
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

// A copy of a rank's board.
struct Standing {
  struct Group {
    int index = 0;  // the same on all ranks
    uint64_t entered = 0, left = 0;
    int waits_for = -1;  // the rank whose message this one waits for; -1: for none in particular
    friend bool operator==(const Group&, const Group&) = default;
  };
  int64_t step = -1;  // counted from 1; -1: before the first
  std::string phase;
  uint64_t beats = 0;
  bool is_waiting = false;    // its main thread, for others or for a thread of its own that may
  std::vector<Group> groups;  // that it is a member of
  friend bool operator==(const Standing&, const Standing&) = default;
};

// What the process does while nothing changes on its board.
enum class Activity { kIdle, kBusy, kStopped };

struct WatchdogLimits {
  absl::Duration most = absl::Minutes(10);  // never longer: launch.hang_timeout
  // How long a message or a collective may be waited for: launch.collective_timeout.
  absl::Duration collective = absl::Minutes(10);
  absl::Duration stop = absl::Seconds(30);     // once a stop was asked for: launch.stop_timeout
  absl::Duration at_first = absl::Minutes(5);  // until a phase is known
  absl::Duration floor = absl::Seconds(60);    // however quick a phase is
  int samples = 20;                            // changes of a phase, until it is known
  double times_longest = 20;                   // of a known one
};

struct Hang {
  int rank = -1;
  std::string description;  // "stood still for 61 s in reduce; ranks 0 and 2 waited for it"
};

class Watchdog {
 public:
  explicit Watchdog(const WatchdogLimits& limits) : limits_(limits) {}

  // `boards`: by rank; those that have left the job or ended are absent. Returns who hangs, once there is
  // one. `activity` is asked of a rank that is about to be blamed: one that is busy gets as long as the
  // recipe allows.
  std::optional<Hang> Look(absl::Duration now, const std::map<int, Standing>& boards,
                           const std::function<Activity(int rank)>& activity);

  // A rank has given up waiting for another, in time or not: who keeps the others waiting hangs no longer
  // than launch.collective_timeout.
  void NoteGivenUp() { is_given_up_ = true; }
  // A stop was asked for: who stands still from then on keeps the others from saving.
  void NoteStop(absl::Duration now) { stop_since_ = std::min(stop_since_, now); }

 private:
  struct Seen {
    Standing standing;
    absl::Duration since;
  };
  struct Pauses {  // of one phase, over all ranks
    int64_t changes = 0;
    absl::Duration longest;
  };
  using Boards = std::map<int, Standing>;

  void Note(absl::Duration now, const Boards& boards);
  // Whether it has stood still for longer than it may. `is_awaited`: by another rank.
  bool IsOver(absl::Duration now, int rank, bool is_awaited, const Boards& boards) const;

  const WatchdogLimits limits_;
  std::map<int, Seen> seen_;
  std::map<std::string, Pauses> pauses_;
  bool is_given_up_ = false;
  absl::Duration stop_since_ = absl::InfiniteDuration();
};

// Who keeps the others waiting: the first rank that does not wait, of these one that another waits for; else
// in the same way one that waits for nobody. A rank waits for those whose messages it names, else, if it is
// waiting, for whoever has entered less of a group that both are in. nullopt where all wait for each other.
std::optional<int> WhoIsAwaited(const std::map<int, Standing>& boards);

}  // namespace trainctl::rendezvous
