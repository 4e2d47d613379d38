// A job from its first start to its end as a pure state machine: which node starts and ends its workers, when
// a failed job begins again, and what is recorded. Who joined, who failed first and what workers are told is
// the Coordinator's part, whose notices come in here. No processes, no clock, no threads: the caller hands in
// the time and the event, and carries out the actions, in order. Not thread safe.
//
//   gathering ──every node is ready──▶ running ──failed, finished or stopped──▶ ending ──every node has
//   ended──▶
//       ▲                                                                                       settling
//       └────────────────────────────── restart ◀───────────────────────────────────────────────────┤
//                                                                                                over ◀┘
//
// Every attempt ends on all nodes before the next one begins on any, but for nodes that are lost.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/control_channel.h"
#include "base/status.h"
#include "rendezvous/coordinator.h"
#include "rendezvous/node.h"
#include "rendezvous/restart_policy.h"
#include "rendezvous/watchdog.h"

namespace trainctl::rendezvous {

struct JobOutcome {
  enum class Kind {
    kFinished,
    kStoppedResumable,  // every worker saved and stopped
    kStoppedUnsaved,    // stopped at once, on request
    kFailed,
  };
  Kind kind = Kind::kFinished;
  int64_t generation = 0;
  int64_t num_restarts = 0;
  // kFailed: the rank that failed first (-1: none did, but the job), the step it was in, counted from 1 (-1:
  // during start-up), and the end of its log.
  int rank = -1;
  int64_t step = -1;
  std::string message;  // kFailed: which rank failed, where, how, and why it was not restarted
  std::string log_tail;
  std::optional<int> worker_exit_code;  // when it exited by itself
  std::string stop_reason;              // of a stop: who asked first ("SIGUSR1", "node1: SIGTERM")

  // 0, 75, 130 or 4.
  ExitCode exit_code() const;
};

struct SupervisorOptions {
  std::vector<std::string> nodes;                     // in the order of the ranks
  int64_t max_restarts = 3;                           // without a new checkpoint in between
  absl::Duration stop_timeout = absl::Seconds(30);    // from SIGTERM to SIGKILL
  absl::Duration node_timeout = absl::Minutes(2);     // for a node's agent to be ready
  absl::Duration stacks_timeout = absl::Seconds(25);  // for all nodes to show stacks: a job hangs
  WatchdogLimits watchdog;
  int64_t checkpoint_step = -1;  // the newest committed one
  NodeNeeds needs;               // of each node
};

// ---- events -------------------------------------------------------------------------------------
struct Begin {};  // the first event
// A node's agent can start these workers.
struct NodeReady {
  std::string node;
  std::vector<Slot> slots;
  NodeFacts facts = {};
};
struct NodeReport {
  std::string node;
  NodeEvent event;
};
// Nothing is heard of a node's agent, or it has ended, or cannot be started.
struct NodeLost {
  std::string node;
  std::string why;
};
struct GenerationRecorded {
  int64_t generation = 0;
};
struct CheckpointSeen {
  int64_t step = -1;
};
// The run's folder is not where it was.
struct FolderLost {
  absl::Status why;
};
struct Interrupted {
  std::string reason;
  bool by_hand = false;  // Ctrl-C: the second time stops without saving, the third without waiting
};
struct Settled {};  // after Settle
struct RestartChecked {
  absl::Status status;
};
struct SupervisorTick {};

using SupervisorEvent =
    std::variant<Begin, NodeReady, NodeReport, NodeLost, Notice, GenerationRecorded, CheckpointSeen,
                 FolderLost, Interrupted, Settled, RestartChecked, SupervisorTick>;

// ---- actions ------------------------------------------------------------------------------------
struct ToNode {
  std::string node;
  NodeCommand command;
};
struct StartAgent {  // NodeReady or NodeLost follows
  std::string node;
};
struct ToCoordinator {
  Event event;
};
// On disk before anybody goes, so that the next launcher gives another one. GenerationRecorded follows.
struct RecordGeneration {
  int64_t generation = 0;
  int world_size = 0;
};
struct RecordStop {
  std::string message;
};
struct RecordCheckpoint {
  int64_t step = -1;
  int64_t generation = 0;
};
struct RecordFailure {
  FailureFacts facts;
  int64_t generation = 0;
};
struct RecordRestart {
  std::string reason;
};
struct Say {
  std::string text;
};
struct ShowProgress {
  int64_t generation = 0;
  int rank = -1;
  int64_t num_restarts = 0;
  Progress progress;
};
// Look for the newest checkpoint, and wait for what is being written. Settled follows.
struct Settle {};
// Whether a restart would meet the same folder and data. RestartChecked follows.
struct CheckRestart {};
// The job is over. An error: it could not be run.
struct Conclude {
  absl::StatusOr<JobOutcome> outcome;
};

using SupervisorAction =
    std::variant<ToNode, StartAgent, ToCoordinator, RecordGeneration, RecordStop, RecordCheckpoint,
                 RecordFailure, RecordRestart, Say, ShowProgress, Settle, CheckRestart, Conclude>;

class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options);

  std::vector<SupervisorAction> Decide(absl::Duration now, const SupervisorEvent& event);

  int64_t checkpoint_step() const { return checkpoint_step_; }

 private:
  enum class Phase { kIdle, kGathering, kRunning, kEnding, kSettling, kOver };
  using Actions = std::vector<SupervisorAction>;
  struct Node {
    std::string name;
    std::vector<Slot> slots;
    NodeFacts facts = {};
    bool is_ready = false;      // its agent can be told
    bool is_active = false;     // it has been told to start the workers of this attempt, and has not ended
    bool shows_stacks = false;  // it has been told to, and has not answered
    int first_rank = 0;
    std::optional<std::string> lost;  // why
    absl::Duration retry_at = absl::InfiniteDuration();
  };
  struct Rank {
    std::string member;
    int node = 0;
    int worker = 0;  // on it
    bool has_left = false;
    bool ended = false;
    std::optional<int> exit_code = {};
    std::optional<Activity> activity = {};  // the last answer, not used yet
    bool is_asked = false;
  };
  struct Result {
    JobOutcome::Kind kind = JobOutcome::Kind::kFinished;
    int64_t generation = 0;
    Failure failure;               // kFailed
    std::optional<int> exit_code;  // where no worker's is known
    std::string log_tail;
    absl::Status not_started;  // the job could not be run
  };

  void On(absl::Duration now, const Begin& event, Actions& out);
  void On(absl::Duration now, const NodeReady& event, Actions& out);
  void On(absl::Duration now, const NodeReport& event, Actions& out);
  void On(absl::Duration now, const NodeLost& event, Actions& out);
  void On(absl::Duration now, const Notice& event, Actions& out);
  void On(absl::Duration now, const GenerationRecorded& event, Actions& out);
  void On(absl::Duration now, const CheckpointSeen& event, Actions& out);
  void On(absl::Duration now, const FolderLost& event, Actions& out);
  void On(absl::Duration now, const Interrupted& event, Actions& out);
  void On(absl::Duration now, const Settled& event, Actions& out);
  void On(absl::Duration now, const RestartChecked& event, Actions& out);
  void On(absl::Duration now, const SupervisorTick& event, Actions& out);

  void Heard(absl::Duration now, Node& node, const WorkersNotStarted& what, Actions& out);
  void Heard(absl::Duration now, Node& node, const WorkerEnded& what, Actions& out);
  void Heard(absl::Duration now, Node& node, const BoardsSeen& what, Actions& out);
  void Heard(absl::Duration now, Node& node, const ActivitySeen& what, Actions& out);
  void Heard(absl::Duration now, Node& node, const StacksShown& what, Actions& out);
  void Heard(absl::Duration now, Node& node, const NodeMessage& what, Actions& out);
  void Heard(absl::Duration now, Node& node, const NodeEnded& what, Actions& out);

  void Gather(absl::Duration now, Actions& out);
  void MaybeStart(Actions& out);
  std::string MissingNodes() const;  // and why
  // Whether all nodes will do; if not, the job could not be run.
  bool CheckFacts(Actions& out);
  void HandleStop(const Notice& notice, Actions& out);
  void HandleFailure(absl::Duration now, const Notice& notice, Actions& out);
  void AskForStacks(absl::Duration now, Actions& out);
  void LookForHangs(absl::Duration now, Actions& out);
  Activity ActivityOf(int rank, Actions& out);
  // The attempt has its result; false if it had one.
  bool Close(JobOutcome::Kind kind);
  void EndAttempt(absl::Duration grace, Actions& out);
  void MaybeSettle(Actions& out);
  void Tell(const Node& node, decltype(NodeCommand::what) what, Actions& out) const;
  void ConcludeWith(JobOutcome outcome, Actions& out);
  Node* FindNode(const std::string& name);
  int RankOf(const std::string& member) const;  // -1: of nobody
  FailureFacts Facts() const;

  void SetReady(Node& node, bool is_ready);
  void SetActive(Node& node, bool is_active);

  const SupervisorOptions options_;
  Phase phase_ = Phase::kIdle;
  int64_t attempt_ = 0;
  std::vector<Node> nodes_;
  std::map<std::string, size_t> node_of_;  // by name
  size_t num_ready_ = 0;                   // of nodes_
  size_t num_active_ = 0;
  std::vector<Rank> ranks_;             // of this attempt
  std::map<std::string, int> rank_of_;  // by member
  std::optional<Result> result_;        // of this attempt, once it is known
  int64_t generation_ = 0;              // of this attempt
  bool is_recorded_ = false;            // every worker has its rank, and goes
  absl::Duration node_deadline_ = absl::InfiniteDuration();
  std::optional<Watchdog> watchdog_;
  std::map<int, Standing> boards_;  // by rank
  int hung_ = -1;                   // the rank that the watchdog has found
  size_t num_showing_ = 0;          // nodes, their stacks
  absl::Duration stacks_deadline_ = absl::InfiniteDuration();
  StopMode stop_ = StopMode::kNone;
  std::string stop_reason_;  // the first
  int num_interrupts_ = 0;
  int64_t checkpoint_step_;
  int64_t num_restarts_ = 0;  // of this launch
  std::optional<FailureFacts> previous_;
  int64_t restarts_used_ = 0;  // since a new checkpoint
  RestartDecision restart_;    // while it is checked
};

}  // namespace trainctl::rendezvous
