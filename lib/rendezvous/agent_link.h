// An agent's interface to the coordinator, through which it receives orders and sends reports. It hides the
// transport, including broken connections and reconnects. lib/rpc implements it over gRPC; tests provide
// their own implementations.
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

// Thread-safe.
class AgentLink {
 public:
  struct Dismissed {           // the job is over
    bool is_finished = false;  // true if all training steps are done
  };
  struct Lost {  // the coordinator is gone or rejects this agent
    std::string why;
  };
  using Order = std::variant<NodeSetup, NodeCommand, Dismissed, Lost>;

  virtual ~AgentLink() = default;
  // Returns the orders received since the last call. The very first order is the NodeSetup, which is sent
  // only once.
  virtual std::vector<Order> TakeOrders() = 0;
  // A file descriptor for poll(2) that is readable while orders are pending.
  virtual int order_fd() const = 0;
  // Like RendezvousService::AdmitWorker, but for workers that connect to the agent's socket.
  virtual absl::StatusOr<std::string> AdmitWorker(const Slot& slot) = 0;

  virtual void TellReady(const NodeOffer& offer) = 0;
  virtual void TellNotReady(const std::string& why) = 0;
  virtual void Tell(const NodeEvent& event) = 0;
  // Sends one line of a worker's output. May drop lines, in which case it reports the number of dropped
  // lines.
  virtual void ShowLine(int rank, absl::string_view line) = 0;
  virtual void AskToStop(const std::string& reason) = 0;
  // Sends a heartbeat; call it at least once per NodeSetup::heartbeat_interval. If the connection has broken,
  // this reconnects, which blocks briefly.
  virtual void Beat() = 0;
  // Time since the last message from the coordinator, which answers every heartbeat.
  virtual absl::Duration silence() const = 0;

  // The address at which this agent reached the coordinator.
  virtual std::string coordinator_host() const = 0;
};

}  // namespace trainctl::rendezvous
