// How fast each node sends to the next one over the hosts' network, before the first step: a bad cable or
// port slows all of them down, and no log would say why.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/group.h"

namespace trainctl::comm {

// Collective over `world`, a group of hosts whose ranks come node by node, `ranks_per_node` each. In bytes
// per second; element i: from the node before (of the first one: the last) to node i. No node sends to two or
// receives from two at once. Empty for one node.
absl::StatusOr<std::vector<double>> MeasureHostLinks(Group& world, int ranks_per_node,
                                                     int64_t bytes = 4 << 20);

// "between nodes: 1.17 to 1.18 GB/s", and a sentence for each link of less than half the speed of the usual
// one (the median; of two: the faster one). Pure.
std::vector<std::string> DescribeHostLinks(absl::Span<const double> bytes_per_second, int ranks_per_node);

}  // namespace trainctl::comm
