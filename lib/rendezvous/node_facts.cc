#include "rendezvous/node_facts.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/units.h"

namespace trainctl::rendezvous {
namespace {

constexpr absl::Duration kClockTolerance = absl::Seconds(2);

// What has to be the same on all nodes.
struct Build {
  std::string NodeFacts::*hash;
  const char* name;
};
constexpr Build kBuilds[] = {{&NodeFacts::programs, "workers' program"},
                             {&NodeFacts::trainctl, "trainctl"},
                             {&NodeFacts::libraries, "LibTorch"}};

// That of most nodes; empty: nobody knows its own.
std::string UsualOf(const NamedFacts& nodes, std::string NodeFacts::*hash) {
  std::map<std::string, int> counts;
  for (const auto& [name, facts] : nodes) {
    if (!(facts.*hash).empty()) ++counts[facts.*hash];
  }
  std::string usual;
  for (const auto& [name, facts] : nodes) {  // of as many, the first
    const std::string& own = facts.*hash;
    if (!own.empty() && (usual.empty() || counts[own] > counts[usual])) usual = own;
  }
  return usual;
}

// What of each build the nodes usually have.
std::vector<std::string> UsualBuilds(const NamedFacts& nodes) {
  std::vector<std::string> usual;
  for (const Build& build : kBuilds) usual.push_back(UsualOf(nodes, build.hash));
  return usual;
}

// Why a node cannot take part: a sentence each, without its name.
std::vector<std::string> LacksOf(const NodeFacts& facts, const std::vector<std::string>& usual,
                                 const NodeNeeds& needs) {
  std::vector<std::string> lacks;
  for (size_t i = 0; i < usual.size(); ++i) {
    const std::string& own = facts.*kBuilds[i].hash;
    if (own.empty() || own == usual[i]) continue;
    lacks.push_back(absl::StrCat("its ", kBuilds[i].name, " is another one than the other nodes have (", own,
                                 ", not ", usual[i], "); install the same build on all"));
  }
  if (!facts.run_files.empty() && !needs.run_files.empty() && facts.run_files != needs.run_files) {
    lacks.push_back(absl::StrCat("it reads another recipe or plan in the run's folder than was written (",
                                 facts.run_files, ", not ", needs.run_files,
                                 "); see what its file system caches, and launch again"));
  }
  if (facts.num_devices >= 0 && facts.num_devices < needs.num_devices) {
    lacks.push_back(absl::StrCat("its driver shows ", facts.num_devices, " of ", needs.num_devices,
                                 " devices; see there: trainctl doctor, and CUDA_VISIBLE_DEVICES of its "
                                 "agent"));
  }
  if (facts.memory_available_bytes >= 0 && facts.memory_available_bytes < needs.memory_bytes) {
    lacks.push_back(absl::StrCat(FormatBytes(facts.memory_available_bytes),
                                 " of memory are free there, and its workers' tensors need ",
                                 FormatBytes(needs.memory_bytes), "; see what else runs there"));
  }
  if (facts.run_free_bytes >= 0 && facts.run_free_bytes < needs.run_bytes) {
    lacks.push_back(absl::StrCat(
        "it may write ", FormatBytes(facts.run_free_bytes), " into the run's folder, and a checkpoint takes ",
        FormatBytes(needs.run_bytes), "; free some, or put run.root on another disk"));
  }
  if (facts.temp_free_bytes >= 0 && facts.temp_free_bytes < needs.temp_bytes) {
    lacks.push_back(absl::StrCat("it may write ", FormatBytes(facts.temp_free_bytes),
                                 " into its folder for temporary files (TMPDIR or /tmp), and needs ",
                                 FormatBytes(needs.temp_bytes), "; free some, or set TMPDIR there"));
  }
  return lacks;
}

}  // namespace

absl::Status CheckNodes(const NamedFacts& nodes, const NodeNeeds& needs) {
  std::vector<std::string> lines;
  const std::vector<std::string> usual = UsualBuilds(nodes);
  for (const auto& [name, facts] : nodes) {
    for (const std::string& lack : LacksOf(facts, usual, needs)) {
      lines.push_back(absl::StrCat(name, ": ", lack));
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
