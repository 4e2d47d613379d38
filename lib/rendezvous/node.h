// The messages that the coordinator and a node's agent exchange about the node's processes. Plain data;
// thread-safe. Each message names its attempt, which is one start of all workers, counted from 1 within a
// launch. Messages from older attempts are ignored.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "rendezvous/assignment.h"
#include "rendezvous/coordinator.h"
#include "rendezvous/node_facts.h"
#include "rendezvous/watchdog.h"

namespace trainctl::rendezvous {

// ---- to the agent -------------------------------------------------------------------------------
// Start one worker per slot, in the order given. The previous attempt must have ended on this node.
struct StartWorkers {
  int first_rank = 0;
  std::vector<Slot> slots;
};
// Send SIGTERM to all workers now, and SIGKILL after `grace` to those that are still running. NodeEnded
// follows. Another EndWorkers can only shorten the grace period.
struct EndWorkers {
  absl::Duration grace;
  // The worker whose log tail NodeEnded returns; -1 for none.
  int tail_of = -1;
};
// The worker has finished and saved its work and only has to exit.
struct NoteLeft {
  int worker = -1;
};
// A worker hangs. Write the stacks of all workers to their logs before any worker is ended. StacksShown
// follows within Timeouts::stacks. The next EndWorkers sends the hung worker SIGKILL at once, because it
// responds to nothing else.
struct ShowStacks {
  int hung = -1;  // -1 if the hung worker is on another node
};
// Report whether the worker's process is busy, idle or stopped. ActivitySeen follows.
struct FindActivity {
  int worker = -1;
};

struct NodeCommand {
  int64_t attempt = 0;
  std::variant<StartWorkers, EndWorkers, NoteLeft, ShowStacks, FindActivity> what;
};

// ---- to the coordinator -------------------------------------------------------------------------
// The agent's first message: the workers that the node can start.
struct NodeOffer {
  std::vector<Slot> slots;
  NodeFacts facts = {};
};
struct WorkersNotStarted {
  absl::Status why;
};
struct WorkerEnded {
  int worker = -1;
  Exited exited;
  std::optional<int> exit_code;  // set if it exited on its own rather than by a signal
};
// The boards of the active workers, keyed by worker index.
struct BoardsSeen {
  std::map<int, Standing> boards;
};
struct ActivitySeen {
  int worker = -1;
  Activity activity = Activity::kBusy;
};
struct StacksShown {};
struct NodeMessage {
  std::string text;  // one line for the user
};
// All processes of the attempt have ended, except those hung in the kernel.
struct NodeEnded {
  std::string log_tail;
  bool keeper_lost = false;  // whether the attempt ended because the keeper was lost
};

struct NodeEvent {
  int64_t attempt = 0;
  std::variant<WorkersNotStarted, WorkerEnded, BoardsSeen, ActivitySeen, StacksShown, NodeMessage, NodeEnded>
      what;
};

}  // namespace trainctl::rendezvous
