#include "rendezvous/watchdog.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainctl::rendezvous {
namespace {

constexpr size_t kMaxNamedRanks = 10;  // in a description

std::string Ranks(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return absl::StrCat("rank ", ranks.front());
  if (ranks.size() > kMaxNamedRanks) {
    return absl::StrCat("ranks ", absl::StrJoin(ranks.begin(), ranks.begin() + kMaxNamedRanks, ", "), " and ",
                        ranks.size() - kMaxNamedRanks, " more");
  }
  return absl::StrCat("ranks ", absl::StrJoin(ranks.begin(), ranks.end() - 1, ", "), " and ", ranks.back());
}

// It waits for a message of a rank.
bool NamesSomeone(const Standing& standing) {
  return absl::c_any_of(standing.groups, [](const Standing::Group& group) { return group.waits_for >= 0; });
}

// It waits for whoever has not come as far in a group that both are in.
bool WaitsForTheLast(const Standing& standing) { return standing.is_waiting && !NamesSomeone(standing); }

// Who waits for whom, as far as the boards say. Costs O(n log n) once for n boards; what it is asked then
// costs O(log n).
class Waits {
 public:
  explicit Waits(const std::map<int, Standing>& boards) : boards_(boards) {
    for (const auto& [rank, standing] : boards_) {
      const bool waits_for_the_last = WaitsForTheLast(standing);
      for (const Standing::Group& group : standing.groups) {
        if (group.waits_for >= 0 && group.waits_for != rank) named_.insert(group.waits_for);
        Front& front = fronts_[group.index];
        front.least = std::min(front.least, group.entered);
        if (waits_for_the_last) front.most_of_waiting = std::max(front.most_of_waiting, group.entered);
      }
    }
  }

  bool IsForNobody(int rank) const {
    const Standing& standing = boards_.at(rank);
    if (NamesSomeone(standing)) return false;
    return !standing.is_waiting || absl::c_none_of(standing.groups, [&](const Standing::Group& group) {
      return fronts_.at(group.index).least < group.entered;
    });
  }

  bool IsAwaited(int rank) const {
    return named_.contains(rank) ||
           absl::c_any_of(boards_.at(rank).groups, [&](const Standing::Group& group) {
             return fronts_.at(group.index).most_of_waiting > group.entered;
           });
  }

 private:
  struct Front {  // of a group
    uint64_t least = std::numeric_limits<uint64_t>::max();
    uint64_t most_of_waiting = 0;  // of those that wait for the last
  };
  const std::map<int, Standing>& boards_;
  std::map<int, Front> fronts_;  // by group
  std::set<int> named_;          // by others
};

std::optional<int> FindAwaited(const Waits& waits, const std::map<int, Standing>& boards) {
  const auto find = [&](const auto& is_it) -> std::optional<int> {
    std::optional<int> found;
    for (const auto& [rank, standing] : boards) {
      if (!is_it(rank, standing)) continue;
      if (waits.IsAwaited(rank)) return rank;
      if (!found) found = rank;
    }
    return found;
  };
  const auto works = find([](int, const Standing& standing) { return !standing.is_waiting; });
  if (works) return works;
  return find([&](int rank, const Standing&) { return waits.IsForNobody(rank); });
}

std::vector<int> WhoWaitFor(int rank, const std::map<int, Standing>& boards) {
  const std::vector<Standing::Group>& groups = boards.at(rank).groups;
  const auto is_ahead_of_it = [&](const Standing::Group& own) {
    return absl::c_any_of(groups, [&](const Standing::Group& group) {
      return group.index == own.index && group.entered < own.entered;
    });
  };
  std::vector<int> waiting;
  for (const auto& [other, standing] : boards) {
    if (other == rank) continue;
    const bool waits = WaitsForTheLast(standing)
                           ? absl::c_any_of(standing.groups, is_ahead_of_it)
                           : absl::c_any_of(standing.groups, [&](const Standing::Group& group) {
                               return group.waits_for == rank;
                             });
    if (waits) waiting.push_back(other);
  }
  return waiting;
}

}  // namespace

std::optional<int> WhoIsAwaited(const std::map<int, Standing>& boards) {
  return FindAwaited(Waits(boards), boards);
}

void Watchdog::Note(absl::Duration now, const Boards& boards) {
  std::erase_if(seen_, [&](const auto& entry) { return !boards.contains(entry.first); });
  for (const auto& [rank, standing] : boards) {
    const auto [it, is_new] = seen_.try_emplace(rank, Seen{standing, now});
    Seen& seen = it->second;
    if (is_new || seen.standing == standing) continue;
    if (seen.standing.phase == standing.phase) {
      Pauses& pauses = pauses_[standing.phase];
      ++pauses.changes;
      pauses.longest = std::max(pauses.longest, now - seen.since);
    }
    seen = {standing, now};
  }
}

bool Watchdog::IsOver(absl::Duration now, int rank, bool is_awaited, const Boards& boards) const {
  const absl::Duration since = seen_.at(rank).since;
  if (now - std::max(since, stop_since_) >= limits_.stop) return true;
  if ((is_given_up_ || is_awaited) && now - since >= limits_.collective) return true;
  const auto pauses = pauses_.find(boards.at(rank).phase);
  const bool is_known = pauses != pauses_.end() && pauses->second.changes >= limits_.samples;
  const absl::Duration limit =
      is_known ? std::max(limits_.floor, limits_.times_longest * pauses->second.longest) : limits_.at_first;
  return now - since >= std::min(limit, limits_.most);
}

std::optional<Hang> Watchdog::Look(absl::Duration now, const Boards& boards,
                                   const std::function<Activity(int rank)>& activity) {
  Note(now, boards);
  const Waits waits(boards);
  std::optional<int> rank = FindAwaited(waits, boards);
  if (!rank) {  // all wait for each other: one of them may not be able to take what it was sent
    const auto stopped = absl::c_find_if(boards, [&](const auto& entry) {
      return IsOver(now, entry.first, waits.IsAwaited(entry.first), boards) &&
             activity(entry.first) == Activity::kStopped;
    });
    if (stopped == boards.end()) return std::nullopt;
    rank = stopped->first;
  }
  const bool is_awaited = waits.IsAwaited(*rank);
  if (!IsOver(now, *rank, is_awaited, boards)) return std::nullopt;
  const absl::Duration still = now - seen_.at(*rank).since;
  const bool is_out_of_time =
      still >= limits_.most || ((is_given_up_ || is_awaited) && still >= limits_.collective);
  const Activity doing = activity(*rank);
  if (doing == Activity::kBusy && !is_out_of_time) return std::nullopt;
  const std::string& phase = boards.at(*rank).phase;
  const std::vector<int> waiting = WhoWaitFor(*rank, boards);
  return Hang{
      *rank,
      absl::StrCat("stood still for ", absl::FormatDuration(absl::Trunc(still, absl::Milliseconds(100))),
                   phase.empty() ? "" : absl::StrCat(" (", phase, ")"),
                   doing == Activity::kStopped ? ", as its process is stopped" : "",
                   waiting.empty() ? "" : absl::StrCat("; ", Ranks(waiting), " waited for it"))};
}

}  // namespace trainctl::rendezvous
