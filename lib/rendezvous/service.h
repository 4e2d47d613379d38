// How the launcher sees the rendezvous: it feeds events and takes notices, and never learns how
// they travel. lib/rpc serves it over gRPC; tests use their own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/coordinator.h"

namespace trainctl::rendezvous {

struct ServiceOptions {
  std::string socket_path;  // a Unix socket, at most 107 bytes
  std::string token_path;   // written with mode 0600
  Timeouts timeouts;
  int64_t last_generation = 0;
};

// Thread safe.
class RendezvousService {
 public:
  virtual ~RendezvousService() = default;
  virtual void Submit(const Event& event) = 0;
  // What happened since the last call, in order; progress is thinned to the newest per member.
  virtual std::vector<Notice> TakeNotices() = 0;
  // Readable while there are notices to take: for poll(2).
  virtual int notice_fd() const = 0;
};

// Serves until destroyed.
using RendezvousFactory =
    std::function<absl::StatusOr<std::unique_ptr<RendezvousService>>(const ServiceOptions&)>;

}  // namespace trainctl::rendezvous
