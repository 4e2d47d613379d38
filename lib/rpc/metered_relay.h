// Internal to lib/rpc: copies bytes between connections of clients and a server in this process, and ends a
// connection whose client has sent more than it may. gRPC 1.51 limits neither the number of streams of a
// client that does not acknowledge its settings nor the headers of one stream. Limiting the bytes that a
// client can send limits both. Thread safe.
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
  // `max_bytes`: from a client to the server, over the life of its connection.
  static absl::StatusOr<std::unique_ptr<MeteredRelay>> Start(int64_t max_bytes);
  // Ends all connections.
  ~MeteredRelay();

  // Takes the descriptor of a client's connection, which does not block, and returns one for the server in
  // its place; -1 if there is none to be had. The connection ends when either end does.
  int Add(int client);

 private:
  // One direction.
  struct Pipe {
    int from = -1;
    int to = -1;
    std::vector<char> waiting;  // read, and not written yet
    int64_t left = 0;           // bytes that may still be read
  };
  struct Pair {
    Pipe in, out;  // to the server, to the client
  };

  explicit MeteredRelay(int64_t max_bytes) : max_bytes_(max_bytes) {}
  void Run();
  // Moves what can be moved; false: the connection is to end.
  static bool Move(Pipe& pipe);
  static void Close(const Pair& pair);

  const int64_t max_bytes_;
  int wake_fd_ = -1;
  std::mutex mutex_;
  std::vector<Pair> added_;  // for the thread to take
  bool is_closing_ = false;
  std::thread thread_;
};

}  // namespace trainctl::rpc
