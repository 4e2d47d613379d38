// The launcher's interface to the rendezvous: it submits events and receives notices, independent of the
// transport. lib/rpc implements it over gRPC; tests provide their own implementations.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/coordinator.h"
#include "rendezvous/node.h"

namespace trainctl::rendezvous {

// The settings with which the agents start a job's workers.
struct NodeSetup {
  // The run folder, on a file system shared by all nodes.
  std::string run_dir;
  // The content of run_dir/launch-id, with which a node proves that it has mounted the same folder.
  std::string proof;
  int num_workers = 1;  // number of workers per node
  // Threads per worker; nullopt divides the allowed cores evenly among the workers.
  std::optional<int> threads_per_worker;
  std::vector<std::string> worker_args;
  std::map<std::string, std::string> env;
  absl::Duration stop_timeout;
  absl::Duration heartbeat_interval;
  absl::Duration detect_timeout;
  // Maximum size of each worker's log.
  int64_t log_limit_bytes = 0;
  // Silence of the coordinator after which an agent ends its workers.
  absl::Duration coordinator_timeout;
  // A network interface or address, or "auto" to use the route to the coordinator.
  std::string interface;
};

// Options for a job on several machines.
struct NetworkOptions {
  // Nodes whose agents may connect.
  std::vector<std::string> nodes;
  // Addresses of this machine to listen on; never a wildcard address.
  std::vector<std::string> addresses;
  // Port to listen on; 0 picks a free port, which agents learn from their invitations.
  int port = 0;
  // The file that holds the job's secret, if its agents connect without an invitation; otherwise empty.
  std::string secret_path;
  NodeSetup setup;
};

// A job's run folder. `id` is "<device>:<inode>", which distinguishes the folder from copies of it, or empty
// if unknown.
struct JobFolder {
  std::string path;
  std::string id;
};

struct ServiceOptions {
  std::string socket_path;  // path of a Unix socket, at most 107 bytes
  // File to write the token to that allows stopping the job. Its mode is 0600.
  std::string token_path;
  Timeouts timeouts;
  JobFolder folder;
  std::string job;   // ID of this launch
  int64_t term = 0;  // term of this launch
  int64_t last_generation = 0;
  std::optional<NetworkOptions> network;  // nullopt if all workers are on this machine
};

// A message from or about another node. Messages are delivered in order.
struct NodeNews {
  struct Line {  // one line of a worker's output, as printable text
    int rank = -1;
    std::string text;
  };
  struct Dropped {  // output lines dropped because the connection or this process was too slow
    int64_t num_lines = 0;
  };
  struct Gone {
    std::string why;
  };
  std::string node;
  std::variant<NodeOffer, NodeEvent, Line, Dropped, Gone> what;
};

// Thread-safe.
class RendezvousService {
 public:
  virtual ~RendezvousService() = default;
  virtual void Submit(const Event& event) = 0;
  // Returns the notices since the last call, in order. Keeps only the newest progress notice per member.
  virtual std::vector<Notice> TakeNotices() = 0;
  // A file descriptor for poll(2) that is readable while notices or news are pending.
  virtual int notice_fd() const = 0;
  // Admits a worker on this machine, but only as the member of `slot`. Returns the path of a file with its
  // credentials, which has mode 0600 and exists until the service is destroyed. Returns EnvironmentError if
  // the file cannot be written.
  virtual absl::StatusOr<std::string> AdmitWorker(const Slot& slot) = 0;

  // ---- for a job on several machines
  // Returns an invitation for a node's agent. It is secret (pass it on standard input) and is valid for this
  // node only.
  virtual absl::StatusOr<std::string> Invite(const std::string& node) = 0;
  // Sends a command to a node. If the command cannot be delivered, the node is considered lost and
  // NodeNews::Gone follows.
  virtual void SendToNode(const std::string& node, const NodeCommand& command) = 0;
  virtual std::vector<NodeNews> TakeNodeNews() = 0;
  // Notes that the command that started the node's agent has exited; `why` describes how. NodeNews::Gone
  // follows, unless the agent is connected anyway.
  virtual void NoteAgentCommandEnded(const std::string& node, const std::string& why) = 0;
  // Dismisses the agents because the job is over. `is_finished` says that all training steps are done.
  virtual void DismissNodes(bool is_finished) = 0;
  // Whether every agent that ever connected has exited or been lost.
  virtual bool AllNodesLeft() = 0;
};

// Creates a service, which runs until it is destroyed.
using RendezvousFactory =
    std::function<absl::StatusOr<std::unique_ptr<RendezvousService>>(const ServiceOptions&)>;

}  // namespace trainctl::rendezvous
