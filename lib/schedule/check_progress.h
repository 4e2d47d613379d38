// Whether every rank of a step finishes on a given transport, or which ranks wait for each other forever.
// Internal to the checker. Pure; thread safe.
//
// One execution per transport is enough. Ranks share only messages, with one sender and one receiver, and
// collectives, for which all members wait. Progress of one rank never takes away what another may do, so who
// waits for whom does not depend on speed, and a deadlock of one interleaving is a deadlock of all. One class
// stands for all of its ranks, which meet other classes only through their own pipeline; the cost therefore
// does not grow with the number of data-parallel or tensor-parallel ranks.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "schedule/step.h"

namespace trainctl::schedule {

// Which instructions of different classes meet. The k-th instruction of each party belong together.
class Exchanges {
 public:
  // The checks of messages and groups in check.cc have passed.
  explicit Exchanges(const Step& step);

  // A channel from one class to another (sender, then receiver), or a group of several classes.
  struct Meeting {
    std::vector<int> classes;
    std::vector<std::vector<int>> instructions;  // [party], in list order
  };
  struct Place {
    int meeting = -1;  // -1: meets no other class
    int party = 0;
    int turn = 0;  // position in Meeting::instructions[party]
  };

  const std::vector<Meeting>& meetings() const { return meetings_; }
  const Place& PlaceOf(size_t own_class, size_t instruction) const { return places_[own_class][instruction]; }

 private:
  std::vector<Meeting> meetings_;
  std::vector<std::vector<Place>> places_;  // [class][instruction]
};

// Whether every rank finishes; InternalError describes the cycle of ranks that wait for each other. `needed`
// is MinMessagesInFlight of the step, for the message.
absl::Status CheckProgress(const Step& step, const Exchanges& exchanges, const Transport& transport,
                           int needed);

// Proof::min_messages_in_flight.
int MinMessagesInFlight(const Step& step, const Exchanges& exchanges);

}  // namespace trainctl::schedule
