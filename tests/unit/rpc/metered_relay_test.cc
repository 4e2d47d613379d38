#include "rpc/metered_relay.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>

namespace trainctl::rpc {
namespace {

class MeteredRelayTest : public testing::Test {
 protected:
  static constexpr int64_t kMaxBytes = 1 << 20;
  MeteredRelayTest() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const int flags = ::fcntl(ends[1], F_GETFL);
    EXPECT_EQ(::fcntl(ends[1], F_SETFL, flags | O_NONBLOCK), 0);
    client_ = ends[0];
    server_ = relay_->Add(ends[1]);
    EXPECT_EQ(::fcntl(server_, F_SETFL, 0), 0);
  }
  ~MeteredRelayTest() override {
    ::close(client_);
    ::close(server_);
  }
  static bool Send(int fd, const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t count = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count < 0) return false;
      sent += static_cast<size_t>(count);
    }
    return true;
  }
  // Whether nothing more can be sent to the client for a moment.
  bool IsFull() const {
    pollfd wait = {server_, POLLOUT, 0};
    return ::poll(&wait, 1, 50) == 0;
  }
  // Up to `count` bytes, fewer at the end of the connection.
  static std::string Receive(int fd, size_t count) {
    std::string bytes(count, '\0');
    size_t got = 0;
    while (got < count) {
      const ssize_t more = ::recv(fd, bytes.data() + got, count - got, 0);
      if (more <= 0) break;
      got += static_cast<size_t>(more);
    }
    return bytes.substr(0, got);
  }

  std::unique_ptr<MeteredRelay> relay_ = *MeteredRelay::Start(kMaxBytes);
  int client_ = -1;
  int server_ = -1;
};

TEST_F(MeteredRelayTest, BytesPassBothWays) {
  EXPECT_TRUE(Send(client_, "question"));
  EXPECT_EQ(Receive(server_, 8), "question");
  const std::string answer(8 << 20, 'a');  // more than may go the other way, and than a buffer holds
  std::thread serving([&] { EXPECT_TRUE(Send(server_, answer)); });
  EXPECT_EQ(Receive(client_, answer.size()), answer);
  serving.join();
}

TEST_F(MeteredRelayTest, WhoeverSendsTooMuchIsCutOff) {
  std::thread flooding([&] { EXPECT_FALSE(Send(client_, std::string(64 << 20, 'x'))); });
  EXPECT_LE(Receive(server_, 64 << 20).size(), static_cast<size_t>(kMaxBytes));
  flooding.join();
  EXPECT_EQ(Receive(client_, 1), "");
}

TEST_F(MeteredRelayTest, TheEndOfEitherEndIsTheEndOfBoth) {
  ::shutdown(server_, SHUT_RDWR);
  EXPECT_EQ(Receive(client_, 1), "");
}

// Its server has hung up, and it does not take what was sent before.
TEST_F(MeteredRelayTest, AClientThatDoesNotReadHoldsNothing) {
  EXPECT_EQ(::fcntl(server_, F_SETFL, O_NONBLOCK), 0);
  const std::string piece(1 << 20, 'a');
  while (::send(server_, piece.data(), piece.size(), MSG_NOSIGNAL) > 0 || !IsFull()) continue;
  ::shutdown(server_, SHUT_RDWR);
  // It reads what the buffers hold, and then the end.
  while (Receive(client_, 1 << 20).size() == 1 << 20) continue;
  EXPECT_EQ(Receive(client_, 1), "");
}

TEST_F(MeteredRelayTest, ItsOwnEndIsTheEndOfAll) {
  relay_.reset();
  EXPECT_EQ(Receive(client_, 1), "");
  EXPECT_EQ(Receive(server_, 1), "");
}

}  // namespace
}  // namespace trainctl::rpc
