// Where the nodes of a job reach the launcher's machine when nobody has said so (launch.interface = "auto"):
// on the routes to them, and nowhere else. Pure; thread safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/network.h"

namespace trainctl::launcher {

struct RouteToNode {
  std::string node;
  absl::StatusOr<std::string> source;  // the address from which packets to it leave; or why that is not known
};

// Without repetition. Loopback only if every node is this machine. A node without a route is taken to be on
// the network of the only interface; EnvironmentError, with the node and the interfaces: there are several,
// or none.
absl::StatusOr<std::vector<std::string>> ListenAddresses(absl::Span<const RouteToNode> routes,
                                                         absl::Span<const NetworkInterface> interfaces);

}  // namespace trainctl::launcher
