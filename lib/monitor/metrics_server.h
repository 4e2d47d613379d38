// Serves GET /metrics over HTTP/1.1 to Prometheus on its own thread. Limits the number of connections, the
// size of requests, and the time for each connection. Holds no secrets, does not authenticate clients, and
// responds once per connection. Thread-safe.
//
//   TRAINCTL_ASSIGN_OR_RETURN(auto server, MetricsServer::Listen("127.0.0.1:9400"));
//   server->Serve([&] { return Families(); });  // http://127.0.0.1:9400/metrics
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "monitor/metrics_answer.h"

namespace trainctl::monitor {

class MetricsServer {
 public:
  struct Limits {
    size_t max_connections = 16;  // when exceeded, the oldest connection is closed
    size_t max_request_bytes = 8 << 10;
    // Time from accepting a connection to the end of the response.
    absl::Duration patience = absl::Seconds(5);
  };

  // Listens on "HOST:PORT"; port 0 selects a free port. Connections wait until Serve is called. Returns
  // UsageError if `endpoint` is not a valid endpoint, or EnvironmentError if the port is in use or the host
  // is not an address of this machine.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Listen(const std::string& endpoint,
                                                               const Limits& limits);
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Listen(const std::string& endpoint);
  // Closes all connections.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // The URL with the actual port, such as "http://127.0.0.1:9400/metrics".
  const std::string& url() const { return url_; }

  // Starts responding with the result of `collect`, which is called on the server's thread and must not
  // block. Call this only once.
  void Serve(CollectMetrics collect);

 private:
  struct Connection {
    int fd = -1;
    absl::Duration since;
    std::string request = {};
    std::string answer = {};  // part of the response still to be sent; empty while the request is being read
  };

  MetricsServer(int listener, std::string url, const Limits& limits);
  void Run();
  void Accept();
  // Reads or writes as much as possible without blocking. Returns false once the connection is finished.
  bool Advance(Connection& connection);
  void EndOverdue();

  const Limits limits_;
  const int listener_;
  const int wake_fd_;
  const std::string url_;
  const RealClock clock_;
  CollectMetrics collect_;
  std::list<Connection> connections_;  // oldest first; used only by the server's thread
  std::atomic<bool> is_closing_{false};
  std::thread thread_;
};

}  // namespace trainctl::monitor
