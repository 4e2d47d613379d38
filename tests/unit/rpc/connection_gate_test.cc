// Tests which connections the gate keeps open, without gRPC: the test itself holds the descriptors that the
// gate accepts.
#include "rpc/connection_gate.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <condition_variable>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/network.h"

namespace trainctl::rpc {
namespace {

using testing::HasSubstr;

// A connection from 127.x.y.z or ::1.
class Client {
 public:
  Client(const std::string& to, const std::string& source) {
    const Endpoint endpoint = *ParseEndpoint(to);
    if (endpoint.host == "::1") {
      sockaddr_in6 own = {};
      own.sin6_family = AF_INET6;
      own.sin6_addr = in6addr_loopback;
      sockaddr_in6 address = own;
      address.sin6_port = htons(static_cast<uint16_t>(endpoint.port));
      Connect(own, address);
      address_ = absl::StrCat("ipv6:%5B::1%5D:", port_);
    } else {
      sockaddr_in own = {};
      own.sin_family = AF_INET;
      ::inet_pton(AF_INET, source.c_str(), &own.sin_addr);
      sockaddr_in address = own;
      ::inet_pton(AF_INET, endpoint.host.c_str(), &address.sin_addr);
      address.sin_port = htons(static_cast<uint16_t>(endpoint.port));
      Connect(own, address);
      address_ = absl::StrCat("ipv4:", source, ":", port_);
    }
  }
  ~Client() { ::close(fd_); }

  // As gRPC writes it at the other end.
  const std::string& address() const { return address_; }
  // Waits until the other end has closed.
  void AwaitEnd() const {
    char byte = 0;
    EXPECT_EQ(::recv(fd_, &byte, 1, 0), 0);
  }
  bool has_ended() const {
    char byte = 0;
    return ::recv(fd_, &byte, 1, MSG_DONTWAIT) == 0;
  }

 private:
  // From `own`, whose port is free to choose.
  template <typename Address>
  void Connect(Address own, const Address& to) {
    fd_ = ::socket(reinterpret_cast<const sockaddr&>(to).sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t num_bytes = sizeof(own);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&own), num_bytes), 0);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&own), &num_bytes), 0);
    // Both kinds of address have it in the same place.
    port_ = ntohs(reinterpret_cast<const sockaddr_in&>(own).sin_port);
  }

  int fd_ = -1;
  int port_ = 0;
  std::string address_;
};

// Keeps the descriptors that it is given.
class Kept {
 public:
  ~Kept() {
    for (const int fd : fds_) ::close(fd);
  }
  void Add(int fd) {
    std::lock_guard lock(mutex_);
    fds_.push_back(fd);
    changed_.notify_all();
  }
  void Await(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return fds_.size() >= count; });
  }
  void CloseFirst() {
    std::lock_guard lock(mutex_);
    ::close(fds_.front());
    fds_.erase(fds_.begin());
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> fds_;
};

class Keeper : public ConnectionGate::Acceptor {
 public:
  explicit Keeper(Kept* kept) : kept_(kept) {}
  void HandleNewConnection(NewConnectionParameters* connection) override { kept_->Add(connection->fd); }

 private:
  Kept* const kept_;
};

class ConnectionGateTest : public testing::Test {
 protected:
  void Start(const ConnectionGate::Limits& limits, const std::string& address = "127.0.0.1") {
    gate_ = *ConnectionGate::Listen({address}, 0, "the agents' port", limits, &refusals_);
    gate_->Open(std::make_unique<Keeper>(&kept_));
  }
  std::unique_ptr<Client> Connect(const std::string& source = "127.0.0.1") {
    auto client = std::make_unique<Client>(gate_->endpoints()[0], source);
    kept_.Await(++num_connected_);
    return client;
  }

  static constexpr int kNoLimit = std::numeric_limits<int>::max();
  RealClock clock_;
  RefusalLog refusals_{clock_};
  Kept kept_;
  std::unique_ptr<ConnectionGate> gate_;
  size_t num_connected_ = 0;
};

TEST_F(ConnectionGateTest, WhoeverDoesNotShowWhoItIsIsEnded) {
  Start({.patience = absl::Milliseconds(20), .first_kept_fd = kNoLimit});
  const auto first = Connect();
  const auto second = Connect("127.0.0.2");
  first->AwaitEnd();
  second->AwaitEnd();
}

TEST_F(ConnectionGateTest, WhoeverIsWelcomeStays) {
  Start({.max_connections = 1, .patience = absl::Milliseconds(20), .first_kept_fd = kNoLimit});
  const auto known = Connect();
  gate_->Welcome(known->address());
  for (int i = 0; i < 3; ++i) {
    const auto stranger = Connect();
    stranger->AwaitEnd();
  }
  EXPECT_FALSE(known->has_ended());
}

TEST_F(ConnectionGateTest, AnAddressOfIpv6IsWelcomeToo) {
  gate_ = *ConnectionGate::Listen({"::1"}, 0, "", {.first_kept_fd = kNoLimit}, &refusals_);
  if (gate_->endpoints().empty()) GTEST_SKIP() << "no IPv6 here";
  Start({.max_connections = 1, .first_kept_fd = kNoLimit}, "::1");
  const auto known = Connect();
  gate_->Welcome(known->address());
  const auto stranger = Connect();
  const auto next = Connect();
  stranger->AwaitEnd();
  EXPECT_FALSE(known->has_ended());
}

TEST_F(ConnectionGateTest, OneMoreThanTheLimitEndsTheOldestOfTheAddressWithTheMost) {
  Start({.max_connections = 4, .first_kept_fd = kNoLimit});
  const auto honest = Connect("127.0.0.1");
  std::vector<std::unique_ptr<Client>> flood;
  for (int i = 0; i < 3; ++i) flood.push_back(Connect("127.0.0.9"));
  testing::internal::CaptureStderr();
  const auto next = Connect("127.0.0.2");
  flood[0]->AwaitEnd();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("too many connections to the agents' port; one from 127.0.0.9 was ended"));
  for (const Client* client : {honest.get(), flood[1].get(), flood[2].get(), next.get()}) {
    EXPECT_FALSE(client->has_ended());
  }
}

TEST_F(ConnectionGateTest, OfAddressesWithAsManyTheOldestConnectionIsEnded) {
  Start({.max_connections = 3, .first_kept_fd = kNoLimit});
  const auto oldest = Connect("127.0.0.9");
  const auto other = Connect("127.0.0.7");
  const auto honest = Connect("127.0.0.1");  // sorts first
  const auto next = Connect("127.0.0.8");
  oldest->AwaitEnd();
  EXPECT_FALSE(honest->has_ended());
  EXPECT_FALSE(other->has_ended());
}

TEST_F(ConnectionGateTest, ConnectionsThatAreClosedDoNotCount) {
  Start({.max_connections = 2, .first_kept_fd = kNoLimit});
  auto gone = Connect();
  const auto stays = Connect();
  kept_.CloseFirst();
  --num_connected_;
  const auto next = Connect();
  EXPECT_FALSE(stays->has_ended());
  EXPECT_FALSE(next->has_ended());
}

TEST_F(ConnectionGateTest, ASocketThatWasRemovedIsThereAgain) {
  std::string folder = testing::TempDir() + "/gateXXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/s";
  gate_ = *ConnectionGate::ListenAt(path, {.first_kept_fd = kNoLimit}, &refusals_);
  gate_->Open(std::make_unique<Keeper>(&kept_));
  const auto connect = [&] {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    const bool is_connected = ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    ::close(fd);
    return is_connected;
  };
  EXPECT_TRUE(connect());
  kept_.Await(1);
  ::unlink(path.c_str());
  EXPECT_FALSE(connect());
  EXPECT_TRUE(gate_->RestoreSocket().ok());
  EXPECT_TRUE(connect());
  kept_.Await(2);
  // Another launcher's, or in another folder of that name.
  ::unlink(path.c_str());
  ASSERT_TRUE(WriteFileAtomic(path, "").ok());
  EXPECT_TRUE(gate_->RestoreSocket().ok());
  EXPECT_EQ(*FileBytes(path), 0);
  ASSERT_EQ(::rename(folder.c_str(), (folder + "-moved").c_str()), 0);
  ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  EXPECT_TRUE(gate_->RestoreSocket().ok());
  EXPECT_FALSE(PathExists(path));
  gate_.reset();
  (void)RemoveAll(folder);
  (void)RemoveAll(folder + "-moved");
}

TEST_F(ConnectionGateTest, DescriptorsThatAreKeptForOthersAreNotUsed) {
  Start({.first_kept_fd = 3});
  const Client refused(gate_->endpoints()[0], "127.0.0.1");
  refused.AwaitEnd();
}

}  // namespace
}  // namespace trainctl::rpc
