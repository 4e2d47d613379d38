#include "launcher/listen_addresses.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::launcher {
namespace {

bool IsForOthers(const NetworkInterface& interface) {
  return interface.is_up && !interface.is_loopback && !interface.addresses.empty();
}

// Of the interface that there is no choice about.
absl::StatusOr<std::string> OnlyAddress(const RouteToNode& route,
                                        absl::Span<const NetworkInterface> interfaces) {
  if (absl::c_count_if(interfaces, IsForOthers) == 1) {
    return AddressOfInterface(absl::c_find_if(interfaces, IsForOthers)->name, interfaces);
  }
  return EnvironmentError(
      absl::StrCat("cannot determine the address at which ", route.node,
                   " can reach this machine: there is no route to it (", route.source.status().message(),
                   "), and ", DescribeInterfaces(interfaces), "; set launch.interface to one of them"));
}

bool IsOnNetwork(const std::string& address, absl::Span<const NetworkInterface> interfaces) {
  const absl::StatusOr<std::string> name = InterfaceWithAddress(address, interfaces);
  return name.ok() && absl::c_any_of(interfaces, [&](const NetworkInterface& interface) {
           return interface.name == *name && !interface.is_loopback;
         });
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListenAddresses(absl::Span<const RouteToNode> routes,
                                                         absl::Span<const NetworkInterface> interfaces) {
  std::vector<std::string> on_networks;
  std::vector<std::string> on_loopback;
  for (const RouteToNode& route : routes) {
    std::string address;
    if (route.source.ok()) {
      address = *route.source;
    } else {
      TRAINCTL_ASSIGN_OR_RETURN(address, OnlyAddress(route, interfaces));
    }
    std::vector<std::string>& found = IsOnNetwork(address, interfaces) ? on_networks : on_loopback;
    if (!absl::c_linear_search(found, address)) found.push_back(std::move(address));
  }
  return on_networks.empty() ? on_loopback : on_networks;
}

}  // namespace trainctl::launcher
