// Determines this machine's addresses and how other machines reach them. Apart from LookAtPort, these
// functions open no connections and send packets only to name servers. Functions that take a host name block
// until the resolver responds. Thread-safe.
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
  std::string address;  // bindable form, such as "10.0.0.7", "fd00::7", or "fe80::7%eth0"
  int prefix_bits = 0;  // prefix length of the address's network
  bool is_ipv6 = false;
  bool is_link_local = false;
};

struct NetworkInterface {
  std::string name;
  int index = 0;       // kernel's interface index
  bool is_up = false;  // whether it is enabled and has a carrier
  bool is_loopback = false;
  std::vector<InterfaceAddress> addresses;  // IPv4 first
};

// Returns this machine's interfaces, sorted by index. Returns EnvironmentError if the kernel does not provide
// the list.
absl::StatusOr<std::vector<NetworkInterface>> ListInterfaces();

// Returns the source address of packets to `host` (a name or an address). Returns a loopback address if
// `host` is a loopback name of this machine. Returns EnvironmentError if the name is unknown or there is no
// route.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& host, int port);

// Returns the addresses of a host (a name or an address), best first. Returns EnvironmentError if the name is
// unknown.
absl::StatusOr<std::vector<std::string>> AddressesOf(const std::string& host);

// Resolves launch.interface to an address. `what` is an interface, one of its addresses, or a network
// ("10.0.0.0/8") in which this machine has an address. For an interface, IPv4 addresses are preferred, and
// link-local ones come last.
//
// Returns EnvironmentError if no interface or more than one matches, or if the interface is down or has no
// address; the message lists the interfaces. Returns UsageError if the network is invalid ("10.0.0.0/99").
absl::StatusOr<std::string> AddressOfInterface(absl::string_view what);
absl::StatusOr<std::string> AddressOfInterface(absl::string_view what,
                                               absl::Span<const NetworkInterface> interfaces);

// Returns the name of the interface that has this address.
absl::StatusOr<std::string> InterfaceWithAddress(absl::string_view address);
absl::StatusOr<std::string> InterfaceWithAddress(absl::string_view address,
                                                 absl::Span<const NetworkInterface> interfaces);

// Returns a clause for the end of a message: "this machine has lo (127.0.0.1/8), eth0 (10.0.0.7/24)".
std::string DescribeInterfaces(absl::Span<const NetworkInterface> interfaces);

struct Endpoint {
  std::string host;
  int port = 0;
};

// Formats an endpoint: "10.0.0.7:41003", "[fd00::7]:41003", "node0:41003".
std::string FormatEndpoint(absl::string_view host, int port);
// Parses the output of FormatEndpoint. Returns UsageError for any other text. The port must be between
// `least_port` and 65535.
absl::StatusOr<Endpoint> ParseEndpoint(absl::string_view text, int least_port = 1);

enum class PortState {
  kOpen,    // a process is listening
  kClosed,  // the machine replies that no process is listening
  kSilent,  // no reply in time, or no route
};
// Enough for a reply from anywhere in a cluster.
inline constexpr absl::Duration kProbeTimeout = absl::Milliseconds(300);
// Opens and closes a TCP connection. The host must be an address, so that no name has to be resolved. Blocks
// for at most `timeout`.
PortState LookAtPort(const Endpoint& endpoint, absl::Duration timeout);

}  // namespace trainctl
