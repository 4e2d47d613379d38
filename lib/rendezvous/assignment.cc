#include "rendezvous/assignment.h"

#include "absl/strings/str_cat.h"
#include "base/counter_rng.h"
#include "base/json.h"
#include "base/status.h"

namespace trainctl::rendezvous {
namespace {

constexpr int64_t kVersion = 1;

absl::StatusOr<AssignedMember> ParseMember(const Json& entry, absl::string_view what) {
  AssignedMember member;
  TRAINCTL_ASSIGN_OR_RETURN(member.slot.member, JsonString(entry, "member", what));
  TRAINCTL_ASSIGN_OR_RETURN(member.slot.node, JsonString(entry, "node", what));
  TRAINCTL_ASSIGN_OR_RETURN(member.slot.worker_id, JsonInt(entry, "worker_id", what));
  TRAINCTL_ASSIGN_OR_RETURN(member.slot.threads, JsonInt(entry, "threads", what));
  TRAINCTL_ASSIGN_OR_RETURN(member.incarnation, JsonInt(entry, "incarnation", what));
  TRAINCTL_ASSIGN_OR_RETURN(member.rank, JsonInt(entry, "rank", what));
  TRAINCTL_ASSIGN_OR_RETURN(member.local_rank, JsonInt(entry, "local_rank", what));
  const auto cores = entry.find("cores");
  if (cores == entry.end() || !cores->is_array()) {
    return BadDataError(absl::StrCat(what, ": field 'cores' must be a list"));
  }
  for (const Json& core : *cores) {
    if (!core.is_number_integer()) return BadDataError(absl::StrCat(what, ": a core must be a number"));
    member.slot.cores.push_back(core.get<int>());
  }
  return member;
}

}  // namespace

std::string SerializeAssignment(const Assignment& assignment) {
  Json members = Json::array();
  for (const AssignedMember& member : assignment.members) {
    members.push_back({{"member", member.slot.member},
                       {"node", member.slot.node},
                       {"worker_id", member.slot.worker_id},
                       {"threads", member.slot.threads},
                       {"cores", member.slot.cores},
                       {"incarnation", member.incarnation},
                       {"rank", member.rank},
                       {"local_rank", member.local_rank}});
  }
  const Json blob = {{"version", kVersion},
                     {"term", assignment.term},
                     {"generation", assignment.generation},
                     {"members", members}};
  return FormatJson(blob);
}

absl::StatusOr<Assignment> ParseAssignment(absl::string_view bytes) {
  constexpr absl::string_view kWhat = "world assignment";
  TRAINCTL_ASSIGN_OR_RETURN(const Json blob, ParseJson(bytes, kWhat));
  TRAINCTL_ASSIGN_OR_RETURN(const int64_t version, JsonInt(blob, "version", kWhat));
  if (version > kVersion) {
    return BadDataError(absl::StrCat("world assignment has version ", version, ", this program reads up to ",
                                     kVersion, "; use one version of trainctl and its worker"));
  }
  Assignment assignment;
  TRAINCTL_ASSIGN_OR_RETURN(assignment.term, JsonInt(blob, "term", kWhat));
  TRAINCTL_ASSIGN_OR_RETURN(assignment.generation, JsonInt(blob, "generation", kWhat));
  const auto members = blob.find("members");
  if (members == blob.end() || !members->is_array()) {
    return BadDataError(absl::StrCat(kWhat, ": field 'members' must be a list"));
  }
  for (const Json& entry : *members) {
    TRAINCTL_ASSIGN_OR_RETURN(AssignedMember member, ParseMember(entry, kWhat));
    assignment.members.push_back(std::move(member));
  }
  return assignment;
}

uint64_t AssignmentHash(absl::string_view bytes) { return StreamOf(bytes); }

absl::StatusOr<WorldAssignment> FindMember(const Assignment& assignment, absl::string_view member,
                                           int64_t incarnation) {
  for (const AssignedMember& candidate : assignment.members) {
    if (candidate.slot.member != member || candidate.incarnation != incarnation) continue;
    WorldAssignment world;
    world.term = assignment.term;
    world.generation = assignment.generation;
    world.rank = candidate.rank;
    world.local_rank = candidate.local_rank;
    world.world_size = static_cast<int>(assignment.members.size());
    world.threads = candidate.slot.threads;
    world.cores = candidate.slot.cores;
    return world;
  }
  return absl::NotFoundError(
      absl::StrCat("member ", member, " is not part of generation ", assignment.generation));
}

}  // namespace trainctl::rendezvous
