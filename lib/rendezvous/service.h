// How the launcher sees the rendezvous: it feeds events and takes notices, and never learns how
// they travel. lib/rpc serves it over gRPC; tests use their own.
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

// How the agents of a job's nodes start its workers.
struct NodeSetup {
  std::string run_dir;  // on a file system that all nodes see
  std::string proof;    // what run_dir/launch-id holds: a node proves with it that it sees the same folder
  int num_workers = 1;  // per node
  std::optional<int> threads_per_worker;  // nullopt: allowed cores / workers
  std::vector<std::string> worker_args;
  std::map<std::string, std::string> env;
  absl::Duration stop_timeout;
  absl::Duration heartbeat_interval;
  absl::Duration detect_timeout;
  int64_t log_limit_bytes = 0;         // of a worker's log
  absl::Duration coordinator_timeout;  // an agent that hears nothing for so long ends its workers
  std::string interface;               // an interface, an address, or "auto": the route to the coordinator
};

// Of a job on several machines.
struct NetworkOptions {
  std::vector<std::string> nodes;      // whose agents may come
  std::vector<std::string> addresses;  // of this machine, to listen on: never all of them
  int port = 0;                        // 0: a free one, as the invitations say
  // The file that holds the secret of a job whose agents come uninvited; empty: there is none.
  std::string secret_path;
  NodeSetup setup;
};

// The run folder that a job works on. `id` tells it from its copies: "<device>:<inode>"; empty: not known.
struct JobFolder {
  std::string path;
  std::string id;
};

struct ServiceOptions {
  std::string socket_path;  // a Unix socket, at most 107 bytes
  std::string token_path;   // of whoever may stop the job; written with mode 0600
  Timeouts timeouts;
  JobFolder folder;
  std::string job;   // the id of this launch
  int64_t term = 0;  // its term
  int64_t last_generation = 0;
  std::optional<NetworkOptions> network;  // nullopt: all workers are of this machine
};

// What is heard of another node, in order.
struct NodeNews {
  struct Line {  // of a worker's output, printable
    int rank = -1;
    std::string text;
  };
  struct Dropped {  // lines, because the connection or this process was too slow
    int64_t num_lines = 0;
  };
  struct Gone {
    std::string why;
  };
  std::string node;
  std::variant<NodeOffer, NodeEvent, Line, Dropped, Gone> what;
};

// Thread safe.
class RendezvousService {
 public:
  virtual ~RendezvousService() = default;
  virtual void Submit(const Event& event) = 0;
  // What happened since the last call, in order; progress is thinned to the newest per member.
  virtual std::vector<Notice> TakeNotices() = 0;
  // Readable while there are notices or news to take: for poll(2).
  virtual int notice_fd() const = 0;
  // Lets a worker of this machine in, as this slot's member and no other. Returns the file with what it has
  // to show, of mode 0600 and there until the service ends. EnvironmentError when it cannot be written.
  virtual absl::StatusOr<std::string> AdmitWorker(const Slot& slot) = 0;

  // ---- of a job on several machines
  // What an agent needs to come: to be handed to it in secret (its standard input), and good for one node.
  virtual absl::StatusOr<std::string> Invite(const std::string& node) = 0;
  // A command that does not arrive means that the node is lost; NodeNews::Gone follows.
  virtual void SendToNode(const std::string& node, const NodeCommand& command) = 0;
  virtual std::vector<NodeNews> TakeNodeNews() = 0;
  // The command that started the node's agent has ended, `why` says how. NodeNews::Gone follows, but not
  // while the agent is there without it.
  virtual void NoteAgentCommandEnded(const std::string& node, const std::string& why) = 0;
  // The job is over: agents end. `is_finished`: nothing is left to train.
  virtual void DismissNodes(bool is_finished) = 0;
  // Whether all agents that were there have ended, or are lost.
  virtual bool AllNodesLeft() = 0;
};

// Serves until destroyed.
using RendezvousFactory =
    std::function<absl::StatusOr<std::unique_ptr<RendezvousService>>(const ServiceOptions&)>;

}  // namespace trainctl::rendezvous
