// Which addresses this machine has, and which of them another machine reaches. Opens no connection and sends
// no packet but to a name server, LookAtPort aside. Names block until the resolver answers. Thread safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(std::string own, LocalAddressTowards("node0", 29500));  // "10.0.0.7"
//   std::string endpoint = FormatEndpoint(own, port);                                 // "10.0.0.7:41003"
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace trainctl {

struct InterfaceAddress {
  std::string address;  // "10.0.0.7", "fd00::7", "fe80::7%eth0": as it can be bound and dialled
  int prefix_bits = 0;  // of its network
  bool is_ipv6 = false;
  bool is_link_local = false;
};

struct NetworkInterface {
  std::string name;
  int index = 0;       // the kernel's
  bool is_up = false;  // switched on, and with a carrier
  bool is_loopback = false;
  std::vector<InterfaceAddress> addresses;  // IPv4 first
};

// By index. EnvironmentError when the kernel does not tell.
absl::StatusOr<std::vector<NetworkInterface>> ListInterfaces();

// The address from which packets to `host` (a name or an address) would leave. It is a loopback address where
// the host is this machine by such a name. EnvironmentError: the name is not known, or there is no route.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host, int port);

// The addresses of a host (a name or an address), best first. EnvironmentError: the name is not known.
absl::StatusOr<std::vector<std::string>> AddressesOf(const std::string& host);

// What launch.interface names: an interface, one of its addresses, or a network ("10.0.0.0/8") in which this
// machine has an address. Of an interface's addresses IPv4 comes first and link-local last. EnvironmentError
// that lists the interfaces: none is meant, it is down or has no address, or a network means several;
// UsageError: no network ("10.0.0.0/99").
absl::StatusOr<std::string> AddressOfInterface(absl::string_view what);
absl::StatusOr<std::string> AddressOfInterface(absl::string_view what,
                                               absl::Span<const NetworkInterface> interfaces);

// The name of the interface that has this address.
absl::StatusOr<std::string> InterfaceWithAddress(absl::string_view address);
absl::StatusOr<std::string> InterfaceWithAddress(absl::string_view address,
                                                 absl::Span<const NetworkInterface> interfaces);

// "this machine has lo (127.0.0.1/8), eth0 (10.0.0.7/24)": for the end of a message.
std::string DescribeInterfaces(absl::Span<const NetworkInterface> interfaces);

struct Endpoint {
  std::string host;
  int port = 0;
};

// "10.0.0.7:41003", "[fd00::7]:41003", "node0:41003".
std::string FormatEndpoint(absl::string_view host, int port);
// UsageError for what FormatEndpoint does not write; ports are 1 to 65535.
absl::StatusOr<Endpoint> ParseEndpoint(absl::string_view text);

enum class PortState {
  kOpen,    // something listens
  kClosed,  // the machine answers that nothing does
  kSilent,  // no answer in time, or no route
};
// Opens a connection over TCP, and closes it. The host is an address, of which there is no name to resolve.
PortState LookAtPort(const Endpoint& endpoint, absl::Duration timeout);

}  // namespace trainctl
