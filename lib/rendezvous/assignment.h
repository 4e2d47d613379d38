// Assigns every member of a generation its rank, threads and cores. A generation's assignment never changes:
// it is serialized once, and every member verifies its hash. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainctl::rendezvous {

// A place for one worker, offered by a node's agent.
struct Slot {
  std::string member;  // "<node>/<worker id>", unique within the job
  std::string node;
  int worker_id = 0;       // index among the node's workers
  int threads = 1;         // number of compute threads
  std::vector<int> cores;  // cores to pin the worker to; empty if it is not pinned
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
  std::vector<AssignedMember> members;  // members in rank order, starting with rank 0
};

// One worker's part of an assignment.
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
// Returns BadDataError if `bytes` is not the output of SerializeAssignment.
absl::StatusOr<Assignment> ParseAssignment(absl::string_view bytes);
uint64_t AssignmentHash(absl::string_view bytes);

// Returns the member's part of the assignment, or NotFound if the assignment does not contain this
// incarnation of the member.
absl::StatusOr<WorldAssignment> FindMember(const Assignment& assignment, absl::string_view member,
                                           int64_t incarnation);

}  // namespace trainctl::rendezvous
