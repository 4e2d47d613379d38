// How an agent sees the coordinator: it takes orders and tells, and never learns how they travel, nor that a
// connection broke and another was made. lib/rpc does it over gRPC; tests use their own.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rendezvous/node.h"
#include "rendezvous/service.h"

namespace trainctl::rendezvous {

// Thread safe.
class AgentLink {
 public:
  struct Dismissed {           // the job is over
    bool is_finished = false;  // nothing is left to train
  };
  struct Lost {  // the coordinator is gone, or does not want this agent
    std::string why;
  };
  using Order = std::variant<NodeSetup, NodeCommand, Dismissed, Lost>;

  virtual ~AgentLink() = default;
  // What came since the last call. A NodeSetup comes first, and once.
  virtual std::vector<Order> TakeOrders() = 0;
  // Readable while there are orders to take: for poll(2).
  virtual int order_fd() const = 0;
  // As RendezvousService::AdmitWorker, to the agent's socket.
  virtual absl::StatusOr<std::string> AdmitWorker(const Slot& slot) = 0;

  virtual void TellReady(const NodeOffer& offer) = 0;
  virtual void TellNotReady(const std::string& why) = 0;
  virtual void Tell(const NodeEvent& event) = 0;
  // A line of a worker's output; may drop, and tells how many.
  virtual void ShowLine(int rank, absl::string_view line) = 0;
  virtual void AskToStop(const std::string& reason) = 0;
  // To be called at least every NodeSetup::heartbeat_interval; an agent that has lost its connection comes
  // back with one. Blocks for a moment then.
  virtual void Beat() = 0;
  // Since anything came from the coordinator, which answers beats.
  virtual absl::Duration silence() const = 0;

  // The address of the coordinator that was reached.
  virtual std::string coordinator_host() const = 0;
};

}  // namespace trainctl::rendezvous
