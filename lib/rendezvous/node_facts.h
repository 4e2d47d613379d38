// What a node is, as its agent sees it before any worker starts, and whether a job can use it. Pure; thread
// safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace trainctl::rendezvous {

struct NodeFacts {
  std::string programs;                 // hash of what workers run; empty: unknown
  int64_t memory_available_bytes = -1;  // could be allocated now without swapping; -1: unknown
  int64_t num_devices = -1;             // accelerators that a driver shows; -1: nobody asked
  std::string trainctl;                 // hash of the agent's program; empty: unknown
  std::string libraries;                // hash of the LibTorch that workers would load; empty: unknown
  std::string run_files;                // hash of the run's recipe and plan as they are read there
  int64_t run_free_bytes = -1;          // what may be written into the run's folder; -1: unknown
  int64_t temp_free_bytes = -1;         // and into the folder for temporary files
  // Of its wall clock before the launcher's; the time that the message took makes it look later than it is.
  absl::Duration clock_ahead = absl::ZeroDuration();
};

// Of a job, on each of its nodes.
struct NodeNeeds {
  int64_t memory_bytes = 0;  // of its workers' tensors, where they lie in the node's memory
  int64_t num_devices = 0;   // accelerators
  int64_t run_bytes = 0;     // what a checkpoint takes in the run's folder
  int64_t temp_bytes = 0;    // of sockets and secrets
  std::string run_files;     // as in NodeFacts, where the job is launched; empty: any
};

using NamedFacts =
    std::vector<std::pair<std::string, NodeFacts>>;  // by the node's name, in the order of the ranks

// EnvironmentError with a line for each node that cannot take part, and why. Programs and libraries that
// differ are those of the fewer nodes; of as many, those that are not the first node's.
absl::Status CheckNodes(const NamedFacts& nodes, const NodeNeeds& needs);

// A sentence for each node whose clock is off by more than two seconds: times in logs are each node's own.
std::vector<std::string> NotesOnClocks(const NamedFacts& nodes);

}  // namespace trainctl::rendezvous
