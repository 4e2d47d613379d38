// Facts that a node's agent gathers before any worker starts, and checks whether a job can use the node. Pure
// functions; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace trainctl::rendezvous {

struct NodeFacts {
  // Hash of the programs that the workers run; empty if unknown.
  std::string programs;
  // Memory that can be allocated now without swapping; -1 if unknown.
  int64_t memory_available_bytes = -1;
  // Number of accelerators that the driver reports; -1 if the job needs none.
  int64_t num_devices = -1;
  // Hash of the agent's executable; empty if unknown.
  std::string trainctl;
  // Hash of the LibTorch that the workers would load; empty if unknown.
  std::string libraries;
  // Hash of the run's recipe and plan, as read on the node.
  std::string run_files;
  // Free space for the run folder; -1 if unknown.
  int64_t run_free_bytes = -1;
  // Free space for temporary files; -1 if unknown.
  int64_t temp_free_bytes = -1;
  // The node's wall clock minus the launcher's. The message's transit time makes the difference look smaller
  // than it is.
  absl::Duration clock_ahead = absl::ZeroDuration();
};

// A job's requirements on each of its nodes.
struct NodeNeeds {
  // Size of the workers' tensors if they are kept in host memory.
  int64_t memory_bytes = 0;
  // Number of accelerators.
  int64_t num_devices = 0;
  // Size of a checkpoint, which is written to the run folder.
  int64_t run_bytes = 0;
  // Size of temporary files such as sockets and secrets.
  int64_t temp_bytes = 0;
  // NodeFacts::run_files as computed by the launcher; if empty, every value is accepted.
  std::string run_files;
};

using NamedFacts = std::vector<std::pair<std::string, NodeFacts>>;  // facts by node name, in rank order

// Returns EnvironmentError if any node cannot take part, with one line per such node that gives the reason.
// If programs or libraries differ between nodes, the error names the nodes whose build is in the minority, or
// if there is no minority, those that differ from the first node.
absl::Status CheckNodes(const NamedFacts& nodes, const NodeNeeds& needs);

// Returns one sentence for each node whose clock is off by more than two seconds. Clock skew matters because
// each node logs with its own clock.
std::vector<std::string> NotesOnClocks(const NamedFacts& nodes);

}  // namespace trainctl::rendezvous
