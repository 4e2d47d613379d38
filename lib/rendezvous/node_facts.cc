#include "rendezvous/node_facts.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/units.h"

namespace trainctl::rendezvous {
namespace {

constexpr absl::Duration kClockTolerance = absl::Seconds(2);

// That of most nodes; empty: nobody knows its own.
std::string UsualPrograms(const NamedFacts& nodes) {
  std::map<std::string, int> counts;
  for (const auto& [name, facts] : nodes) {
    if (!facts.programs.empty()) ++counts[facts.programs];
  }
  std::string usual;
  for (const auto& [name, facts] : nodes) {  // of as many, the first
    if (!facts.programs.empty() && (usual.empty() || counts[facts.programs] > counts[usual])) {
      usual = facts.programs;
    }
  }
  return usual;
}

}  // namespace

absl::Status CheckNodes(const NamedFacts& nodes, const NodeNeeds& needs) {
  std::vector<std::string> lines;
  const std::string usual = UsualPrograms(nodes);
  for (const auto& [name, facts] : nodes) {
    if (!facts.programs.empty() && facts.programs != usual) {
      lines.push_back(absl::StrCat(name, ": its workers' program is another one than the other nodes have (",
                                   facts.programs, ", not ", usual, "); install the same build on all"));
    }
    if (facts.num_devices >= 0 && facts.num_devices < needs.num_devices) {
      lines.push_back(absl::StrCat(name, ": its driver shows ", facts.num_devices, " of ", needs.num_devices,
                                   " devices; see there: trainctl doctor"));
    }
    if (facts.memory_available_bytes >= 0 && facts.memory_available_bytes < needs.memory_bytes) {
      lines.push_back(absl::StrCat(name, ": ", FormatBytes(facts.memory_available_bytes),
                                   " of memory are free there, and its workers' tensors need ",
                                   FormatBytes(needs.memory_bytes), "; see what else runs there"));
    }
  }
  return lines.empty() ? absl::OkStatus() : EnvironmentError(absl::StrJoin(lines, "\n"));
}

std::vector<std::string> NotesOnClocks(const NamedFacts& nodes) {
  std::vector<std::string> notes;
  for (const auto& [name, facts] : nodes) {
    if (absl::AbsDuration(facts.clock_ahead) <= kClockTolerance) continue;
    const bool is_ahead = facts.clock_ahead > absl::ZeroDuration();
    notes.push_back(absl::StrCat(
        "the clock of ", name, " is ",
        absl::FormatDuration(absl::Trunc(absl::AbsDuration(facts.clock_ahead), absl::Milliseconds(100))),
        is_ahead ? " ahead of" : " behind",
        " the launcher's; nothing depends on it, but times in its logs do"));
  }
  return notes;
}

}  // namespace trainctl::rendezvous
