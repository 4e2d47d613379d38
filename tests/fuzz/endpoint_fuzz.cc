// Fuzzes addresses: an endpoint is refused with its words, or written and read back as the same; what names
// an interface finds an address of one that is up.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/network.h"
#include "base/status.h"

namespace trainctl {
namespace {

void FuzzEndpoint(absl::string_view text) {
  const auto endpoint = ParseEndpoint(text);
  if (!endpoint.ok()) {
    TRAINCTL_CHECK(absl::StrContains(endpoint.status().message(), "is no address with a port"));
    return;
  }
  TRAINCTL_CHECK(!endpoint->host.empty() && endpoint->port >= 1 && endpoint->port <= 65535);
  const auto again = ParseEndpoint(FormatEndpoint(endpoint->host, endpoint->port));
  TRAINCTL_CHECK(again.ok() && again->host == endpoint->host && again->port == endpoint->port);
}

void FuzzInterface(absl::string_view text) {
  static const std::vector<NetworkInterface>& interfaces = *new std::vector<NetworkInterface>{
      {.name = "lo", .is_up = true, .is_loopback = true, .addresses = {{.address = "127.0.0.1"}}},
      {.name = "eth0",
       .is_up = true,
       .addresses = {{.address = "10.0.0.7"}, {.address = "fd00::7", .is_ipv6 = true}}},
      {.name = "eth1", .addresses = {{.address = "10.1.0.7"}}}};
  const auto address = AddressOfInterface(text, interfaces);
  if (address.ok()) TRAINCTL_CHECK(*InterfaceWithAddress(*address, interfaces) != "eth1");
}

}  // namespace
}  // namespace trainctl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size_bytes);
  trainctl::FuzzEndpoint(text);
  trainctl::FuzzInterface(text);
  return 0;
}
