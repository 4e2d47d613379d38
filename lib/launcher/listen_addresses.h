// Chooses the addresses on which the launcher listens for nodes if launch.interface is "auto": only those on
// the routes to the nodes. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/network.h"

namespace trainctl::launcher {

struct RouteToNode {
  std::string node;
  // Source address of packets to the node, or the error if it cannot be determined.
  absl::StatusOr<std::string> source;
};

// Returns the addresses to listen on, without duplicates. Loopback is included only if every node is this
// machine. A node without a route is assumed to be on the network of the only interface; if there is not
// exactly one, returns an EnvironmentError that names the node and the interfaces.
absl::StatusOr<std::vector<std::string>> ListenAddresses(absl::Span<const RouteToNode> routes,
                                                         absl::Span<const NetworkInterface> interfaces);

}  // namespace trainctl::launcher
