#include "base/network.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status.h"

namespace trainctl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

InterfaceAddress V4(const char* address, int bits = 24) {
  return {.address = address, .prefix_bits = bits, .is_ipv6 = false, .is_link_local = false};
}

InterfaceAddress V6(const char* address, bool is_link_local = false) {
  return {.address = address, .prefix_bits = 64, .is_ipv6 = true, .is_link_local = is_link_local};
}

NetworkInterface Interface(const char* name, std::vector<InterfaceAddress> addresses, bool is_up = true) {
  return {.name = name,
          .is_up = is_up,
          .is_loopback = std::string(name) == "lo",
          .addresses = std::move(addresses)};
}

// Loopback, Ethernet, InfiniBand, and what is switched off.
std::vector<NetworkInterface> ANode() {
  return {Interface("lo", {V4("127.0.0.1", 8), V6("::1")}),
          Interface("eth0", {V4("10.0.0.7"), V6("fe80::7%eth0", true), V6("fd00::7")}),
          Interface("ib0", {V6("fe80::9%ib0", true), V4("10.9.0.7")}),
          Interface("eth1", {V4("172.16.0.7")}, /*is_up=*/false), Interface("tun0", {})};
}

std::string AddressOf(absl::string_view what) {
  const absl::StatusOr<std::string> address = AddressOfInterface(what, ANode());
  return address.ok() ? *address : std::string(address.status().message());
}

TEST(AddressOfInterface, TakesANameAnAddressOrANetwork) {
  EXPECT_EQ(AddressOf("eth0"), "10.0.0.7");
  EXPECT_EQ(AddressOf("ib0"), "10.9.0.7") << "link-local comes last";
  EXPECT_EQ(AddressOf("lo"), "127.0.0.1");
  EXPECT_EQ(AddressOf("10.9.0.7"), "10.9.0.7");
  EXPECT_EQ(AddressOf("fd00:0:0::7"), "fd00::7") << "as the interface writes it";
  EXPECT_EQ(AddressOf("fe80::9"), "fe80::9%ib0");
  EXPECT_EQ(AddressOf("10.9.0.0/16"), "10.9.0.7");
  EXPECT_EQ(AddressOf("10.9.0.4/30"), "10.9.0.7");
  EXPECT_EQ(AddressOf("fd00::/8"), "fd00::7");
  EXPECT_EQ(AddressOf("10.0.0.7/32"), "10.0.0.7");
}

TEST(AddressOfInterface, ListsWhatThereIsWhenNothingIsMeant) {
  const std::string there_is =
      "; this machine has lo (127.0.0.1/8, ::1/64), eth0 (10.0.0.7/24, fe80::7%eth0/64, fd00::7/64), "
      "ib0 (fe80::9%ib0/64, 10.9.0.7/24), eth1 (down, 172.16.0.7/24), tun0 (no address)";
  EXPECT_EQ(AddressOf("eth9"), "'eth9' is no network interface" + there_is);
  EXPECT_EQ(AddressOf("eth1"), "'eth1' is down" + there_is);
  EXPECT_EQ(AddressOf("tun0"), "'tun0' has no address" + there_is);
  EXPECT_EQ(AddressOf("10.0.0.8"), "'10.0.0.8' is no address of this machine" + there_is);
  EXPECT_EQ(AddressOf("172.16.0.7"), "'172.16.0.7' belongs to eth1, which is down" + there_is);
  EXPECT_EQ(AddressOf("10.9.0.8/30"), "'10.9.0.8/30' has no address of this machine" + there_is);
  EXPECT_EQ(AddressOf("172.16.0.0/12"), "'172.16.0.0/12' is a network whose interface is down" + there_is);
  EXPECT_EQ(AddressOf("10.0.0.0/8"),
            "'10.0.0.0/8' has several addresses of this machine (10.0.0.7 of eth0, 10.9.0.7 of ib0): name a "
            "smaller network or an interface" +
                there_is);
  EXPECT_EQ(ExitCodeFor(AddressOfInterface("eth9", ANode()).status()), ExitCode::kEnvironment);
  EXPECT_THAT(AddressOf("\n"), HasSubstr("'\\n' is no network interface"));
}

TEST(AddressOfInterface, RefusesWhatIsNoNetwork) {
  for (const char* text :
       {"10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "eth0/8", "/8", "fd00::/129", "1/2/3"}) {
    const absl::Status status = AddressOfInterface(text, ANode()).status();
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kUsage) << text << ": " << status;
  }
}

TEST(InterfaceWithAddress, FindsTheNameThatLibrariesAskFor) {
  EXPECT_EQ(*InterfaceWithAddress("10.9.0.7", ANode()), "ib0");
  EXPECT_EQ(*InterfaceWithAddress("fe80::9%ib0", ANode()), "ib0");
  EXPECT_EQ(*InterfaceWithAddress("127.0.0.1", ANode()), "lo");
  EXPECT_THAT(std::string(InterfaceWithAddress("fe80::9%eth0", ANode()).status().message()),
              HasSubstr("is no address of this machine"));
  EXPECT_FALSE(InterfaceWithAddress("10.0.0.1", ANode()).ok());
}

TEST(Endpoint, IsReadAsItWasWritten) {
  for (const auto& [host, text] :
       std::vector<std::pair<std::string, std::string>>{{"10.0.0.7", "10.0.0.7:29500"},
                                                        {"node-0.example", "node-0.example:29500"},
                                                        {"fd00::7", "[fd00::7]:29500"},
                                                        {"fe80::7%eth0", "[fe80::7%eth0]:29500"}}) {
    EXPECT_EQ(FormatEndpoint(host, 29500), text);
    const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(text);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    EXPECT_EQ(endpoint->host, host);
    EXPECT_EQ(endpoint->port, 29500);
  }
}

TEST(Endpoint, RefusesWhatHasTwoReadings) {
  for (const char* text : {"",          "node0",        "node0:",        ":29500",
                           "node0:0",   "node0:65536",  "node0:+1",      "node0: 1",
                           "node0:1x",  "fd00::7",      "fd00::7:29500", "[fd00::7]",
                           "[node0]:1", "[10.0.0.7]:1", "[fd00::7:1",    "fd00::7]:1",
                           "[]:1",      "no de:1",      "a\n:1",         "node0:99999999999999999999"}) {
    EXPECT_EQ(ExitCodeFor(ParseEndpoint(text).status()), ExitCode::kUsage) << text;
  }
}

TEST(LocalAddressTowards, IsLoopbackForThisMachine) {
  EXPECT_EQ(*LocalAddressTowards("127.0.0.1", 29500), "127.0.0.1");
  const absl::Status status = LocalAddressTowards("no-such-host.invalid", 29500).status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kEnvironment);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot resolve 'no-such-host.invalid': "));
}

TEST(AddressesOf, AreThoseOfTheName) {
  EXPECT_THAT(*AddressesOf("10.0.0.7"), testing::Each("10.0.0.7"));
  EXPECT_THAT(*AddressesOf("fd00::7"), testing::Each("fd00::7"));
  EXPECT_THAT(*AddressesOf("localhost"), testing::Contains(testing::AnyOf("127.0.0.1", "::1")));
  EXPECT_EQ(ExitCodeFor(AddressesOf("no-such-host.invalid").status()), ExitCode::kEnvironment);
}

// The interface of that name as the kernel lists it now; without a name if there is none.
NetworkInterface FindInterface(absl::string_view name) {
  const absl::StatusOr<std::vector<NetworkInterface>> all = ListInterfaces();
  EXPECT_TRUE(all.ok()) << all.status();
  for (const NetworkInterface& interface : all.value_or(std::vector<NetworkInterface>())) {
    if (interface.name == name) return interface;
  }
  return NetworkInterface();
}

// Runs `body` in a child with a network of its own: "a0" and "a1" are the two ends of a cable, "b0" is down.
// It reports through its exit code and the shared output. False: not permitted here.
bool InOwnNetwork(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNET) != 0) ::_exit(77);
    const char* const setup =
        "{ ip link set lo up && ip link add a0 type veth peer name a1 && "
        "ip link add b0 type veth peer name b1 && ip addr add 10.71.0.5/16 dev a0 && "
        "ip addr add 10.72.0.5/24 dev a1 && ip addr add 10.73.0.5/24 dev b0 && "
        "ip addr add fd71::5/64 dev a0 nodad && ip link set a0 up && ip link set a1 up && "
        "ip route add default via 10.72.0.1; } 2>/dev/null";
    if (std::system(setup) != 0) ::_exit(77);
    // The kernel notices the carrier of a cable in a work queue, after `ip` has returned.
    const absl::Time limit = absl::Now() + absl::Seconds(60);
    while (!(FindInterface("a0").is_up && FindInterface("a1").is_up) && absl::Now() < limit) ::sched_yield();
    body();
    std::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) == 77) return false;
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the child's own words are above";
  return true;
}

TEST(Network, IsReadFromTheKernel) {
  const bool was_run = InOwnNetwork([] {
    const NetworkInterface lo = FindInterface("lo"), a0 = FindInterface("a0");
    EXPECT_EQ(ListInterfaces()->size(), 5);
    EXPECT_TRUE(lo.is_loopback && lo.is_up);
    EXPECT_TRUE(a0.is_up && !a0.is_loopback);
    EXPECT_FALSE(FindInterface("b0").is_up);
    const std::vector<InterfaceAddress>& addresses = a0.addresses;
    ASSERT_GE(addresses.size(), 2);
    EXPECT_EQ(addresses[0].address, "10.71.0.5");
    EXPECT_EQ(addresses[0].prefix_bits, 16);
    EXPECT_FALSE(addresses[0].is_ipv6);
    bool has_ipv6 = false;
    for (const InterfaceAddress& address : addresses) {
      if (address.address == "fd71::5") has_ipv6 = address.is_ipv6 && address.prefix_bits == 64;
      EXPECT_EQ(address.is_link_local, address.address.rfind("fe80", 0) == 0) << address.address;
    }
    EXPECT_TRUE(has_ipv6);
  });
  if (!was_run) GTEST_SKIP() << "needs the right to make network namespaces, and ip";
}

TEST(Network, TheRouteDecidesTheAddress) {
  const bool was_run = InOwnNetwork([] {
    EXPECT_EQ(*LocalAddressTowards("10.71.9.9", 29500), "10.71.0.5");
    EXPECT_EQ(*LocalAddressTowards("10.72.0.9", 29500), "10.72.0.5");
    EXPECT_EQ(*LocalAddressTowards("203.0.113.9", 29500), "10.72.0.5") << "by the default route";
    EXPECT_EQ(*LocalAddressTowards("fd71::9", 29500), "fd71::5");
    EXPECT_EQ(*LocalAddressTowards("10.71.0.5", 29500), "10.71.0.5") << "an address of its own";
    EXPECT_THAT(std::string(LocalAddressTowards("fd99::1", 29500).status().message()),
                AllOf(HasSubstr("no route to 'fd99::1' (fd99::1: "), HasSubstr("unreachable")));
    EXPECT_EQ(*AddressOfInterface("a1"), "10.72.0.5");
    EXPECT_EQ(*AddressOfInterface("10.71.0.0/16"), "10.71.0.5");
    EXPECT_THAT(std::string(AddressOfInterface("b0").status().message()), HasSubstr("'b0' is down"));
    EXPECT_EQ(*InterfaceWithAddress("10.71.0.5"), "a0");
  });
  if (!was_run) GTEST_SKIP() << "needs the right to make network namespaces, and ip";
}

}  // namespace
}  // namespace trainctl
