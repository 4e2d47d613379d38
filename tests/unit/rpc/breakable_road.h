// A way to a TCP port that breaks when it is told to: both ends of all connections see a reset. New ones may
// come at once.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace trainctl::rpc {

class BreakableRoad {
 public:
  explicit BreakableRoad(int target_port)
      : target_port_(target_port),
        listener_(::socket(AF_INET, SOCK_STREAM, 0)),
        wake_fd_(::eventfd(0, EFD_NONBLOCK)) {
    sockaddr_in address = Loopback(0);
    socklen_t length = sizeof(address);
    is_good_ = ::bind(listener_, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
               ::listen(listener_, 64) == 0 &&
               ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) == 0;
    endpoint_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
    thread_ = std::thread([this] { Run(); });
  }
  ~BreakableRoad() {
    is_closing_ = true;
    Wake();
    thread_.join();
    ::close(listener_);
    ::close(wake_fd_);
  }

  bool is_good() const { return is_good_; }
  const std::string& endpoint() const { return endpoint_; }
  int num_connections() const { return num_connections_; }
  void Break() {
    must_break_ = true;
    Wake();
  }

 private:
  struct Connection {
    int near, far;
  };

  static sockaddr_in Loopback(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    return address;
  }
  void Wake() {
    const uint64_t one = 1;
    (void)!::write(wake_fd_, &one, sizeof(one));
  }
  static void Reset(const Connection& connection) {
    const linger at_once = {1, 0};
    for (const int fd : {connection.near, connection.far}) {
      ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
      ::close(fd);
    }
  }
  void Accept() {
    const int near = ::accept(listener_, nullptr, nullptr);
    const int far = ::socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = Loopback(target_port_);
    if (::connect(far, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      return Reset({near, far});
    }
    ++num_connections_;
    connections_.push_back({near, far});
  }
  // False: the connection has ended.
  static bool Carry(int from, int to) {
    char buffer[64 << 10];
    const ssize_t count = ::recv(from, buffer, sizeof(buffer), 0);
    for (ssize_t sent = 0; sent < count;) {
      const ssize_t now = ::send(to, buffer + sent, static_cast<size_t>(count - sent), MSG_NOSIGNAL);
      if (now <= 0) return false;
      sent += now;
    }
    return count > 0;
  }

  void Run() {
    while (!is_closing_) {
      std::vector<pollfd> fds = {{listener_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
      for (const Connection& connection : connections_) {
        fds.push_back({connection.near, POLLIN, 0});
        fds.push_back({connection.far, POLLIN, 0});
      }
      ::poll(fds.data(), fds.size(), -1);
      uint64_t count = 0;
      (void)!::read(wake_fd_, &count, sizeof(count));
      if (must_break_.exchange(false)) {
        for (const Connection& connection : connections_) Reset(connection);
        connections_.clear();
        continue;
      }
      size_t at = 2;
      for (auto it = connections_.begin(); it != connections_.end(); at += 2) {
        const bool goes_on = (fds[at].revents == 0 || Carry(it->near, it->far)) &&
                             (fds[at + 1].revents == 0 || Carry(it->far, it->near));
        if (!goes_on) Reset(*it);
        it = goes_on ? std::next(it) : connections_.erase(it);
      }
      if (fds[0].revents != 0) Accept();
    }
    for (const Connection& connection : connections_) Reset(connection);
  }

  const int target_port_;
  const int listener_;
  const int wake_fd_;
  bool is_good_ = false;
  std::string endpoint_;
  std::list<Connection> connections_;
  std::atomic<int> num_connections_{0};
  std::atomic<bool> must_break_{false};
  std::atomic<bool> is_closing_{false};
  std::thread thread_;
};

}  // namespace trainctl::rpc
