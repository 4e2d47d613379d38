#include "rendezvous/watchdog.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainctl::rendezvous {
namespace {

std::string Ranks(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return absl::StrCat("rank ", ranks.front());
  return absl::StrCat("ranks ", absl::StrJoin(ranks.begin(), ranks.end() - 1, ", "), " and ", ranks.back());
}

std::vector<int> WhoWaitFor(int rank, const std::map<int, Standing>& boards) {
  std::vector<int> waiting;
  for (const auto& [other, standing] : boards) {
    if (other != rank && absl::c_linear_search(AwaitedBy(other, boards), rank)) waiting.push_back(other);
  }
  return waiting;
}

}  // namespace

std::vector<int> AwaitedBy(int rank, const std::map<int, Standing>& boards) {
  const Standing& standing = boards.at(rank);
  std::vector<int> awaited;
  for (const Standing::Group& group : standing.groups) {
    if (group.waits_for >= 0) awaited.push_back(group.waits_for);
  }
  if (!awaited.empty() || !standing.is_waiting) return awaited;
  // For whoever has not come as far in a group that both are in.
  for (const Standing::Group& own : standing.groups) {
    for (const auto& [other, others] : boards) {
      const auto same =
          absl::c_find_if(others.groups, [&](const Standing::Group& g) { return g.index == own.index; });
      if (other != rank && same != others.groups.end() && same->entered < own.entered)
        awaited.push_back(other);
    }
  }
  return awaited;
}

std::optional<int> WhoIsAwaited(const std::map<int, Standing>& boards) {
  const auto find = [&](const auto& is_it) -> std::optional<int> {
    std::optional<int> found;
    for (const auto& [rank, standing] : boards) {
      if (!is_it(rank, standing)) continue;
      if (!WhoWaitFor(rank, boards).empty()) return rank;
      if (!found) found = rank;
    }
    return found;
  };
  const auto works = find([](int, const Standing& standing) { return !standing.is_waiting; });
  if (works) return works;
  return find([&](int rank, const Standing&) { return AwaitedBy(rank, boards).empty(); });
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

bool Watchdog::IsOver(absl::Duration now, int rank, const Boards& boards) const {
  const absl::Duration since = seen_.at(rank).since;
  if (now - std::max(since, stop_since_) >= limits_.stop) return true;
  const bool is_awaited = is_given_up_ || !WhoWaitFor(rank, boards).empty();
  if (is_awaited && now - since >= limits_.collective) return true;
  const auto pauses = pauses_.find(boards.at(rank).phase);
  const bool is_known = pauses != pauses_.end() && pauses->second.changes >= limits_.samples;
  const absl::Duration limit =
      is_known ? std::max(limits_.floor, limits_.times_longest * pauses->second.longest) : limits_.at_first;
  return now - since >= std::min(limit, limits_.most);
}

std::optional<Hang> Watchdog::Look(absl::Duration now, const Boards& boards,
                                   const std::function<Activity(int rank)>& activity) {
  Note(now, boards);
  std::optional<int> rank = WhoIsAwaited(boards);
  if (!rank) {  // all wait for each other: one of them may not be able to take what it was sent
    const auto stopped = absl::c_find_if(boards, [&](const auto& entry) {
      return IsOver(now, entry.first, boards) && activity(entry.first) == Activity::kStopped;
    });
    if (stopped == boards.end()) return std::nullopt;
    rank = stopped->first;
  }
  if (!IsOver(now, *rank, boards)) return std::nullopt;
  const absl::Duration still = now - seen_.at(*rank).since;
  const std::vector<int> waiting = WhoWaitFor(*rank, boards);
  const bool is_out_of_time =
      still >= limits_.most || ((is_given_up_ || !waiting.empty()) && still >= limits_.collective);
  const Activity doing = activity(*rank);
  if (doing == Activity::kBusy && !is_out_of_time) return std::nullopt;
  const std::string& phase = boards.at(*rank).phase;
  return Hang{
      *rank,
      absl::StrCat("stood still for ", absl::FormatDuration(absl::Trunc(still, absl::Milliseconds(100))),
                   phase.empty() ? "" : absl::StrCat(" (", phase, ")"),
                   doing == Activity::kStopped ? ", as its process is stopped" : "",
                   waiting.empty() ? "" : absl::StrCat("; ", Ranks(waiting), " waited for it"))};
}

}  // namespace trainctl::rendezvous
