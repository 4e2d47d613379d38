#include "launcher/listen_addresses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"

namespace trainctl::launcher {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const NetworkInterface kLoopback = {
    .name = "lo", .is_up = true, .is_loopback = true, .addresses = {{.address = "127.0.0.1"}}};
const NetworkInterface kEthernet = {
    .name = "eth0",
    .is_up = true,
    .addresses = {{.address = "10.0.0.7"}, {.address = "fd00::7", .is_ipv6 = true}}};
const NetworkInterface kFast = {.name = "ib0", .is_up = true, .addresses = {{.address = "10.9.0.7"}}};
const NetworkInterface kDown = {.name = "eth1", .addresses = {{.address = "10.2.0.7"}}};

RouteToNode NoRoute(const char* node) { return {node, EnvironmentError("cannot resolve it")}; }

TEST(ListenAddresses, AreThoseOfTheRoutesToTheNodesAndNoOthers) {
  const std::vector<NetworkInterface> all = {kLoopback, kEthernet, kFast};
  EXPECT_THAT(*ListenAddresses({{"a", "10.9.0.7"}, {"b", "10.9.0.7"}}, all), ElementsAre("10.9.0.7"));
  EXPECT_THAT(*ListenAddresses({{"a", "fd00::7"}, {"b", "10.9.0.7"}}, all),
              ElementsAre("fd00::7", "10.9.0.7"));
}

TEST(ListenAddresses, AreLoopbackOnlyWhereEveryNodeIsThisMachine) {
  const std::vector<NetworkInterface> all = {kLoopback, kEthernet, kFast};
  EXPECT_THAT(*ListenAddresses({{"a", "127.0.1.1"}, {"b", "10.0.0.7"}}, all), ElementsAre("10.0.0.7"));
  EXPECT_THAT(*ListenAddresses({{"a", "127.0.0.1"}, {"b", "127.0.0.1"}}, all), ElementsAre("127.0.0.1"));
}

TEST(ListenAddresses, OfAnUnknownNodeAreThoseOfTheOnlyInterface) {
  EXPECT_THAT(*ListenAddresses({{"a", "127.0.0.1"}, NoRoute("b")}, {kLoopback, kEthernet, kDown}),
              ElementsAre("10.0.0.7"));
}

TEST(ListenAddresses, AreAskedForWhereNothingTellsWhichToTake) {
  for (const std::vector<NetworkInterface>& interfaces :
       {std::vector<NetworkInterface>{kLoopback, kEthernet, kFast}, {kLoopback, kDown}}) {
    const absl::Status status =
        ListenAddresses({{"node0", "10.0.0.7"}, NoRoute("node1")}, interfaces).status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kEnvironment);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("node1 can reach this machine"), HasSubstr("cannot resolve it"),
                      HasSubstr(interfaces[1].name + " ("), HasSubstr("set launch.interface")));
  }
}

}  // namespace
}  // namespace trainctl::launcher
