// Internal to lib/rpc: relays bytes between client connections and a server in this process, and closes a
// connection whose client exceeds its byte limit. gRPC 1.51 does not limit the headers of a stream, or the
// number of streams of a client that does not acknowledge the settings. A limit on the bytes that a client
// sends bounds both. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainctl::rpc {

class MeteredRelay {
 public:
  // Starts a relay. `max_bytes` limits how much each client may send during its whole connection.
  static absl::StatusOr<std::unique_ptr<MeteredRelay>> Start(int64_t max_bytes);
  // Ends all connections.
  ~MeteredRelay();

  // Takes ownership of a client connection's non-blocking descriptor and returns a descriptor for the server
  // to use instead, or -1 on failure. The connection ends when either side closes it.
  int Add(int client);

 private:
  // One direction of a connection.
  struct Pipe {
    int from = -1;
    int to = -1;
    std::vector<char> waiting;  // read but not yet written
    int64_t left = 0;           // number of bytes that may still be read
  };
  struct Pair {
    Pipe in, out;  // from client to server, and from server to client
  };

  explicit MeteredRelay(int64_t max_bytes) : max_bytes_(max_bytes) {}
  void Run();
  // Moves the available bytes. Returns false if the connection must be closed.
  static bool Move(Pipe& pipe);
  static void Close(const Pair& pair);

  const int64_t max_bytes_;
  int wake_fd_ = -1;
  std::mutex mutex_;
  std::vector<Pair> added_;  // pairs that the thread has yet to pick up
  bool is_closing_ = false;
  std::thread thread_;
};

}  // namespace trainctl::rpc
