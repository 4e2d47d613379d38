// What the workers of a job do, as lines for people: each by itself, or, where they are many, each node, or
// all. Pure; thread safe.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "rpc/admin_client.h"

namespace trainctl::rpc {

// Of a job on several machines, lines name the node:
//
//   rank 1      on node2: running, step 4, forward, 118.86 MiB, process 5152, heard 0.3 s ago
//   node2       8 running, step 40 (rank 11) to 41, at most 3.2 GiB (rank 9), heard 0.3 s ago (rank 8)
//
// Memory is that of a rank's tensors, at their peak so far.
std::vector<std::string> WorkerLines(absl::Span<const WorkerStatus> workers, bool has_nodes);

// "0.4 s", "3:20 min", "1:02:34 h"
std::string Age(absl::Duration age);

}  // namespace trainctl::rpc
