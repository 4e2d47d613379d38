// Internal to the checker: detects deadlocks of a step on a given transport. Pure functions; thread-safe.
//
// One simulated execution per transport is enough. Ranks interact only through messages, which have one
// sender and one receiver, and through collectives, which wait for all members. The progress of one rank
// never prevents another from proceeding, so the relative speeds do not matter. If one interleaving
// deadlocks, all do.
//
// It is enough to simulate one rank per class, because each rank communicates with other classes only within
// its own pipeline. The cost therefore does not grow with the number of data-parallel or tensor-parallel
// ranks.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "schedule/step.h"

namespace trainctl::schedule {

// Matches the instructions of different classes that communicate with each other. The k-th instructions of
// all parties of a meeting belong together.
class Exchanges {
 public:
  // The step must have passed the checks of messages and groups in check.cc.
  explicit Exchanges(const Step& step);

  // A channel from one class to another, or a group of several classes. The classes of a channel are the
  // sender, then the receiver.
  struct Meeting {
    std::vector<int> classes;                    // the parties
    std::vector<std::vector<int>> instructions;  // [party], in list order
  };
  // The position of an instruction in a meeting.
  struct Place {
    int meeting = -1;  // index in meetings(), or -1 if it does not communicate with other classes
    int party = 0;
    int turn = 0;  // position in Meeting::instructions[party]
  };

  const std::vector<Meeting>& meetings() const { return meetings_; }
  const Place& PlaceOf(size_t own_class, size_t instruction) const { return places_[own_class][instruction]; }

 private:
  std::vector<Meeting> meetings_;
  std::vector<std::vector<Place>> places_;  // [class][instruction]
};

// Returns OK if every rank finishes. Otherwise, returns an InternalError that describes the cycle of
// instructions that wait for each other. `needed` is MinMessagesInFlight() of the step, and is only used in
// the error message.
absl::Status CheckProgress(const Step& step, const Exchanges& exchanges, const Transport& transport,
                           int needed);

// Returns Proof::min_messages_in_flight (step.h).
int MinMessagesInFlight(const Step& step, const Exchanges& exchanges);

}  // namespace trainctl::schedule
