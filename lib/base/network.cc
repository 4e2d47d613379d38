#include "base/network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/names.h"
#include "base/status.h"

namespace trainctl {
namespace {

constexpr int kMaxPort = 65535;

// An address in network order.
struct RawAddress {
  std::array<uint8_t, 16> bytes = {};
  int num_bytes = 0;  // 4 or 16

  bool operator==(const RawAddress&) const = default;

  bool SharesPrefix(const RawAddress& other, int bits) const {
    if (num_bytes != other.num_bytes) return false;
    for (int i = 0; i < num_bytes && bits > 0; ++i, bits -= 8) {
      const unsigned mask = bits >= 8 ? 0xFFu : 0xFFu << (8 - bits) & 0xFFu;
      const auto at = static_cast<size_t>(i);
      if (((bytes[at] ^ other.bytes[at]) & mask) != 0) return false;
    }
    return true;
  }
};

// Of text without names; a zone ("%eth0") is left out.
std::optional<RawAddress> ParseAddress(absl::string_view text) {
  const std::string plain(text.substr(0, text.find('%')));
  RawAddress raw;
  if (::inet_pton(AF_INET, plain.c_str(), raw.bytes.data()) == 1) {
    raw.num_bytes = 4;
  } else if (::inet_pton(AF_INET6, plain.c_str(), raw.bytes.data()) == 1) {
    raw.num_bytes = 16;
  } else {
    return std::nullopt;
  }
  return raw;
}

// The same address, and the same zone where both have one.
bool IsSameAddress(absl::string_view a, absl::string_view b) {
  const size_t zone_a = a.find('%'), zone_b = b.find('%');
  const bool have_zones = zone_a != absl::string_view::npos && zone_b != absl::string_view::npos;
  if (have_zones && a.substr(zone_a) != b.substr(zone_b)) return false;
  const std::optional<RawAddress> raw_a = ParseAddress(a), raw_b = ParseAddress(b);
  return raw_a.has_value() && raw_a == raw_b;
}

std::string NumericText(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST];
  const int error = ::getnameinfo(address, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? text : "";
}

int PrefixBits(const sockaddr* mask, bool is_ipv6) {
  if (mask == nullptr) return 0;
  const auto* bytes =
      is_ipv6
          ? reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr.s6_addr
          : reinterpret_cast<const uint8_t*>(&reinterpret_cast<const sockaddr_in*>(mask)->sin_addr.s_addr);
  int bits = 0;
  for (int i = 0; i < (is_ipv6 ? 16 : 4); ++i) bits += __builtin_popcount(bytes[i]);
  return bits;
}

bool IsLinkLocal(const RawAddress& raw) {
  if (raw.num_bytes == 4) return raw.bytes[0] == 169 && raw.bytes[1] == 254;
  return raw.bytes[0] == 0xFE && (raw.bytes[1] & 0xC0) == 0x80;
}

// IPv4, IPv6, and link-local of either last.
int Rank(const InterfaceAddress& address) {
  return (address.is_link_local ? 2 : 0) + (address.is_ipv6 ? 1 : 0);
}

std::string Describe(const NetworkInterface& interface) {
  std::vector<std::string> facts;
  if (!interface.is_up) facts.push_back("down");
  for (const InterfaceAddress& address : interface.addresses) {
    facts.push_back(absl::StrCat(address.address, "/", address.prefix_bits));
  }
  if (facts.empty()) facts.push_back("no address");
  return absl::StrCat(interface.name, " (", absl::StrJoin(facts, ", "), ")");
}

absl::Status NotThere(absl::string_view what, absl::string_view why,
                      absl::Span<const NetworkInterface> interfaces) {
  return EnvironmentError(absl::StrCat(QuotedName(what), " ", why, "; ", DescribeInterfaces(interfaces)));
}

absl::StatusOr<std::string> AddressOf(const NetworkInterface& interface,
                                      absl::Span<const NetworkInterface> interfaces) {
  if (!interface.is_up) return NotThere(interface.name, "is down", interfaces);
  const auto best = std::min_element(
      interface.addresses.begin(), interface.addresses.end(),
      [](const InterfaceAddress& a, const InterfaceAddress& b) { return Rank(a) < Rank(b); });
  if (best == interface.addresses.end()) return NotThere(interface.name, "has no address", interfaces);
  return best->address;
}

absl::StatusOr<std::string> AddressInNetwork(absl::string_view network,
                                             absl::Span<const NetworkInterface> interfaces) {
  const size_t slash = network.find('/');
  const std::optional<RawAddress> base = ParseAddress(network.substr(0, slash));
  int bits = 0;
  if (!base.has_value() || !absl::SimpleAtoi(network.substr(slash + 1), &bits) || bits < 0 ||
      bits > 8 * base->num_bytes) {
    return UsageError(absl::StrCat(QuotedName(network), " is no network such as 10.0.0.0/8 or fd00::/64"));
  }
  // One of each interface, with its name.
  std::vector<std::pair<std::string, std::string>> found;
  bool is_down = false;
  for (const NetworkInterface& interface : interfaces) {
    for (const InterfaceAddress& address : interface.addresses) {
      const std::optional<RawAddress> raw = ParseAddress(address.address);
      if (!raw.has_value() || !raw->SharesPrefix(*base, bits)) continue;
      is_down = is_down || !interface.is_up;
      if (!interface.is_up) break;
      found.emplace_back(address.address, interface.name);
      break;
    }
  }
  if (found.size() == 1) return found[0].first;
  if (found.empty()) {
    return NotThere(network,
                    is_down ? "is a network whose interface is down" : "has no address of this machine",
                    interfaces);
  }
  return NotThere(network,
                  absl::StrCat("has several addresses of this machine (",
                               absl::StrJoin(found, ", ", absl::PairFormatter(" of ")),
                               "): name a smaller network or an interface"),
                  interfaces);
}

// Closes a socket.
class Socket {
 public:
  Socket(int family, int type) : fd_(::socket(family, type | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Connecting a datagram socket chooses the route and the source, and sends nothing.
absl::StatusOr<std::string> SourceTowards(const addrinfo& target) {
  const Socket socket(target.ai_family, SOCK_DGRAM);
  sockaddr_storage own = {};
  socklen_t length = sizeof(own);
  if (socket.fd() < 0 || ::connect(socket.fd(), target.ai_addr, target.ai_addrlen) != 0 ||
      ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&own), &length) != 0) {
    return EnvironmentError(std::strerror(errno));
  }
  return NumericText(reinterpret_cast<const sockaddr*>(&own), length);
}

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

absl::StatusOr<AddressList> Resolve(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &list);
  if (error == 0) return AddressList(list, &::freeaddrinfo);
  const char* reason = error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error);
  return EnvironmentError(absl::StrCat("cannot resolve ", QuotedName(host), ": ", reason));
}

}  // namespace

std::string DescribeInterfaces(absl::Span<const NetworkInterface> interfaces) {
  if (interfaces.empty()) return "this machine has no network interface";
  return absl::StrCat(
      "this machine has ",
      absl::StrJoin(interfaces, ", ", [](std::string* out, const NetworkInterface& interface) {
        out->append(Describe(interface));
      }));
}

PortState LookAtPort(const Endpoint& endpoint, absl::Duration timeout) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (::getaddrinfo(endpoint.host.c_str(), absl::StrCat(endpoint.port).c_str(), &hints, &list) != 0) {
    return PortState::kSilent;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  const Socket socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK);
  int error = 0;
  if (::connect(socket.fd(), list->ai_addr, list->ai_addrlen) != 0) {
    error = errno;
    pollfd fd = {socket.fd(), POLLOUT, 0};
    socklen_t length = sizeof(error);
    if (error == EINPROGRESS && (::poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) != 1 ||
                                 ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length) != 0)) {
      return PortState::kSilent;
    }
  }
  if (error == 0) return PortState::kOpen;
  return error == ECONNREFUSED ? PortState::kClosed : PortState::kSilent;
}

absl::StatusOr<std::vector<NetworkInterface>> ListInterfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return EnvironmentError(absl::StrCat("cannot list the network interfaces: ", std::strerror(errno)));
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<NetworkInterface> interfaces;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    auto it = std::find_if(interfaces.begin(), interfaces.end(), [&](const NetworkInterface& interface) {
      return interface.name == entry->ifa_name;
    });
    if (it == interfaces.end()) {
      it = interfaces.insert(interfaces.end(), NetworkInterface());
      it->name = entry->ifa_name;
      it->index = static_cast<int>(::if_nametoindex(entry->ifa_name));
      it->is_up = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0;
      it->is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    }
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    InterfaceAddress address;
    address.is_ipv6 = family == AF_INET6;
    address.address =
        NumericText(entry->ifa_addr, address.is_ipv6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    const std::optional<RawAddress> raw = ParseAddress(address.address);
    if (!raw.has_value()) continue;
    address.prefix_bits = PrefixBits(entry->ifa_netmask, address.is_ipv6);
    address.is_link_local = IsLinkLocal(*raw);
    it->addresses.push_back(std::move(address));
  }
  std::sort(interfaces.begin(), interfaces.end(),
            [](const NetworkInterface& a, const NetworkInterface& b) { return a.index < b.index; });
  for (NetworkInterface& interface : interfaces) {
    std::stable_sort(
        interface.addresses.begin(), interface.addresses.end(),
        [](const InterfaceAddress& a, const InterfaceAddress& b) { return a.is_ipv6 < b.is_ipv6; });
  }
  return interfaces;
}

absl::StatusOr<std::vector<std::string>> AddressesOf(const std::string& host) {
  TRAINCTL_ASSIGN_OR_RETURN(const AddressList list, Resolve(host, 0));
  std::vector<std::string> addresses;
  for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
    addresses.push_back(NumericText(each->ai_addr, each->ai_addrlen));
  }
  return addresses;
}

absl::StatusOr<std::string> LocalAddressTowards(const std::string& host, int port) {
  TRAINCTL_ASSIGN_OR_RETURN(const AddressList list, Resolve(host, port));
  std::vector<std::string> failures;
  for (const addrinfo* target = list.get(); target != nullptr; target = target->ai_next) {
    const absl::StatusOr<std::string> source = SourceTowards(*target);
    if (source.ok() && !source->empty()) return source;
    failures.push_back(absl::StrCat(NumericText(target->ai_addr, target->ai_addrlen), ": ",
                                    source.ok() ? "no address" : source.status().message()));
  }
  return EnvironmentError(
      absl::StrCat("no route to ", QuotedName(host), " (", absl::StrJoin(failures, "; "), ")"));
}

absl::StatusOr<std::string> AddressOfInterface(absl::string_view what) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<NetworkInterface> interfaces, ListInterfaces());
  return AddressOfInterface(what, interfaces);
}

absl::StatusOr<std::string> AddressOfInterface(absl::string_view what,
                                               absl::Span<const NetworkInterface> interfaces) {
  for (const NetworkInterface& interface : interfaces) {
    if (interface.name == what) return AddressOf(interface, interfaces);
  }
  if (what.find('/') != absl::string_view::npos) return AddressInNetwork(what, interfaces);
  if (!ParseAddress(what).has_value()) return NotThere(what, "is no network interface", interfaces);
  for (const NetworkInterface& interface : interfaces) {
    for (const InterfaceAddress& address : interface.addresses) {
      if (!IsSameAddress(address.address, what)) continue;
      if (interface.is_up) return address.address;
      return NotThere(what, absl::StrCat("belongs to ", interface.name, ", which is down"), interfaces);
    }
  }
  return NotThere(what, "is no address of this machine", interfaces);
}

absl::StatusOr<std::string> InterfaceWithAddress(absl::string_view address) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<NetworkInterface> interfaces, ListInterfaces());
  return InterfaceWithAddress(address, interfaces);
}

absl::StatusOr<std::string> InterfaceWithAddress(absl::string_view address,
                                                 absl::Span<const NetworkInterface> interfaces) {
  for (const NetworkInterface& interface : interfaces) {
    for (const InterfaceAddress& own : interface.addresses) {
      if (IsSameAddress(own.address, address)) return interface.name;
    }
  }
  return NotThere(address, "is no address of this machine", interfaces);
}

std::string FormatEndpoint(absl::string_view host, int port) {
  const bool is_ipv6 = host.find(':') != absl::string_view::npos;
  return absl::StrCat(is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "", ":", port);
}

absl::StatusOr<Endpoint> ParseEndpoint(absl::string_view text, int least_port) {
  const auto fail = [&](absl::string_view why) {
    return UsageError(absl::StrCat(QuotedName(text), " is no address with a port: ", why));
  };
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return fail("there is no ':'");
  absl::string_view host = text.substr(0, colon);
  const absl::string_view digits = text.substr(colon + 1);
  const bool has_brackets = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (has_brackets) {
    host = host.substr(1, host.size() - 2);
    const std::optional<RawAddress> raw = ParseAddress(host);
    if (!raw.has_value() || raw->num_bytes != 16) return fail("the brackets hold no IPv6 address");
  } else if (host.find_first_of(":[]") != absl::string_view::npos) {
    return fail("write IPv6 in brackets, such as [fd00::7]:29500");
  }
  const bool is_plain = std::all_of(host.begin(), host.end(),
                                    [](unsigned char c) { return absl::ascii_isgraph(c) || c >= 0x80; });
  if (host.empty() || !is_plain) return fail("there is no host");
  int port = 0;
  const bool is_number = !digits.empty() &&
                         digits.find_first_not_of("0123456789") == absl::string_view::npos &&
                         absl::SimpleAtoi(digits, &port);
  if (!is_number || port < least_port || port > kMaxPort) {
    return fail(absl::StrCat("a port is a number from ", least_port, " to ", kMaxPort));
  }
  return Endpoint{std::string(host), port};
}

}  // namespace trainctl
