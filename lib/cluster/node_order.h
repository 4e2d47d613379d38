// Orders nodes by network topology, so that nearby nodes get nearby ranks and most traffic stays below one
// switch. Pure functions; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainctl::cluster {

// Returns `nodes` reordered so that nodes of the same switch or block are adjacent. The first node stays
// first, and the order is otherwise preserved. `topology` is the output of `scontrol show topology`, which
// has one line per switch (topology/tree) or block (topology/block) with all nodes below it. Nodes that do
// not appear in it keep their positions.
std::vector<std::string> OrderBySwitch(const std::vector<std::string>& nodes, absl::string_view topology);

}  // namespace trainctl::cluster
