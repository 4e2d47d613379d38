// The world of one generation: who is which rank, on how many threads and which cores. One
// immutable blob per generation, serialized once and verified by every member with a hash. Pure;
// thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::rendezvous {

// A place for one worker, offered by a node's agent.
struct Slot {
  std::string member;  // "<node>/<worker id>", unique in the job
  std::string node;
  int worker_id = 0;       // on its node
  int threads = 1;         // for compute
  std::vector<int> cores;  // it is pinned to; empty = not pinned
};

struct AssignedMember {
  Slot slot;
  int64_t incarnation = 0;
  int rank = 0;
  int local_rank = 0;
};

struct Assignment {
  int64_t term = 0;
  int64_t generation = 0;
  std::vector<AssignedMember> members;  // by rank, dense from 0
};

// What one worker needs to know of it.
struct WorldAssignment {
  int64_t term = 0;
  int64_t generation = 0;
  int rank = 0;
  int local_rank = 0;
  int world_size = 0;
  int threads = 1;
  std::vector<int> cores;
};

std::string SerializeAssignment(const Assignment& assignment);
// BadDataError for anything that SerializeAssignment did not write.
absl::StatusOr<Assignment> ParseAssignment(absl::string_view bytes);
uint64_t AssignmentHash(absl::string_view bytes);

// NotFound when the member, in this incarnation, is not part of it.
absl::StatusOr<WorldAssignment> FindMember(const Assignment& assignment, absl::string_view member,
                                           int64_t incarnation);

}  // namespace trainctl::rendezvous
