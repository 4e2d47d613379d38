// Measures, before the first step, how fast each node sends to the next one over the hosts' network. A bad
// cable or port slows down the whole run, and otherwise no log would show the cause.
//
//   TRAINCTL_ASSIGN_OR_RETURN(const auto links, MeasureHostLinks(world, ranks_per_node));
//   for (const std::string& line : DescribeHostLinks(links, ranks_per_node)) PrintLine(line);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/group.h"

namespace trainctl::comm {

// Returns the speed of each link in bytes per second. Element i is the link to node i from the node before
// it; the node before the first is the last. Returns an empty vector if there is only one node.
//
// Collective over `world`, a group from MakeHostGroup. Its ranks are ordered by node, with `ranks_per_node`
// on each. Each link is timed once, with a message of `bytes` bytes. No node sends to two nodes, or receives
// from two nodes, at the same time.
absl::StatusOr<std::vector<double>> MeasureHostLinks(Group& world, int ranks_per_node,
                                                     int64_t bytes = 4 << 20);

// Formats the speeds as lines for the log: "between nodes: 1.17 to 1.18 GB/s", then a warning for each link
// that is slower than half the median. For two nodes there are no warnings, because two speeds do not show
// which one is usual. Returns no lines if `bytes_per_second` is empty. Pure.
std::vector<std::string> DescribeHostLinks(absl::Span<const double> bytes_per_second, int ranks_per_node);

}  // namespace trainctl::comm
