// What the coordinator and the agent of a node tell each other about the node's processes. Plain; thread
// safe. Both name the attempt they speak of: a start of all workers, counted from 1 within a launch. What
// belongs to an older attempt changes nothing.
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
// Start a worker for each slot, in this order. The attempt before must have ended on this node.
struct StartWorkers {
  int first_rank = 0;
  std::vector<Slot> slots;
};
// SIGTERM now, SIGKILL to what is left after `grace`; NodeEnded follows. A later one can only shorten the
// grace.
struct EndWorkers {
  absl::Duration grace;
  int tail_of = -1;  // the end of this worker's log comes with NodeEnded; -1: of none
};
// The worker's work is done and saved: it only has to end.
struct NoteLeft {
  int worker = -1;
};
// A worker hangs: the stacks of all go to their logs, before anyone is ended. StacksShown follows, within
// Timeouts::stacks. EndWorkers gives the hung one SIGKILL at once: it cannot obey anything less.
struct ShowStacks {
  int hung = -1;  // -1: one of another node
};
// ActivitySeen follows.
struct FindActivity {
  int worker = -1;
};

struct NodeCommand {
  int64_t attempt = 0;
  std::variant<StartWorkers, EndWorkers, NoteLeft, ShowStacks, FindActivity> what;
};

// ---- to the coordinator -------------------------------------------------------------------------
// The first word: the node can start these workers.
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
  std::optional<int> exit_code;  // when it ended by itself
};
// What the workers that are at work show, by worker.
struct BoardsSeen {
  std::map<int, Standing> boards;
};
struct ActivitySeen {
  int worker = -1;
  Activity activity = Activity::kBusy;
};
struct StacksShown {};
struct NodeMessage {
  std::string text;  // one line for the person
};
// No process of the attempt is left, but what the kernel does not end.
struct NodeEnded {
  std::string log_tail;
  bool keeper_lost = false;  // that is how it ended
};

struct NodeEvent {
  int64_t attempt = 0;
  std::variant<WorkersNotStarted, WorkerEnded, BoardsSeen, ActivitySeen, StacksShown, NodeMessage, NodeEnded>
      what;
};

}  // namespace trainctl::rendezvous
