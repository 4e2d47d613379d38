// Describes a job's workers in human-readable lines: one per worker, or if there are many workers, one per
// node or a single line for all of them. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "rpc/admin_client.h"

namespace trainctl::rpc {

// Returns the lines. For a job on several machines (`has_nodes`), they name the node:
//
//   rank 1      on node2: running, step 4, forward, 118.86 MiB, process 5152, heard 0.3 s ago
//   node2       8 running, step 40 (rank 11) to 41, at most 3.2 GiB (rank 9), heard 0.3 s ago (rank 8)
//
// The memory is a rank's peak tensor memory so far.
std::vector<std::string> WorkerLines(absl::Span<const WorkerStatus> workers, bool has_nodes);

// Formats an age, for example "0.4 s", "3 min 20 s" or "1 h 2 min".
std::string Age(absl::Duration age);

}  // namespace trainctl::rpc
