// A job from its first start to its end as a pure state machine, which decides when each node starts and ends
// its workers, whether a failed job restarts, and what to record. The Coordinator handles membership, root
// causes and messages to workers; its notices are events here. The supervisor owns no processes, clocks or
// threads: the caller passes in the time and an event, and executes the returned actions in order. Not
// thread-safe.
//
//   gathering ──every node is ready──▶ running ──failed, finished or stopped──▶ ending
//       ▲                                                                         │ every node has ended
//       │                                                                         ▼
//       └──────────────────────────── restart ──────────────────────────────── settling ──▶ over
//
// The next attempt begins only after the current one has ended on all nodes that are not lost.
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
    kStoppedResumable,  // every worker saved and stopped, or there was nothing to save
    kStoppedUnsaved,    // stopped on request without saving
    kFailed,
  };
  Kind kind = Kind::kFinished;
  int64_t generation = 0;
  int64_t num_restarts = 0;
  // For kFailed: the rank that failed first (-1 if no worker failed), its step, counted from 1 (-1 during
  // start-up), and the tail of its log.
  int rank = -1;
  int64_t step = -1;
  // For kFailed: which rank failed, where and how, and why the job was not restarted.
  std::string message;
  std::string log_tail;
  std::optional<int> worker_exit_code;  // set if the worker exited on its own rather than by a signal
  // If the job was stopped, the first stop request ("SIGUSR1", "node1: SIGTERM").
  std::string stop_reason;

  // The launcher's exit code: 0, 75, 130 or 4, in the order of Kind.
  ExitCode exit_code() const;
};

struct SupervisorOptions {
  // Node names in rank order.
  std::vector<std::string> nodes;
  // Limit on the number of restarts since the last new checkpoint.
  int64_t max_restarts = 3;
  // Time between SIGTERM and SIGKILL.
  absl::Duration stop_timeout = absl::Seconds(30);
  // How long a node's agent may take to become ready.
  absl::Duration node_timeout = absl::Minutes(2);
  // How long the nodes may take to show their stacks when the job hangs.
  absl::Duration stacks_timeout = absl::Seconds(25);
  WatchdogLimits watchdog;
  // Step of the newest committed checkpoint; -1 if there is none.
  int64_t checkpoint_step = -1;
  // The job's requirements on each node.
  NodeNeeds needs;
};

// ---- events -------------------------------------------------------------------------------------
struct Begin {};  // must be the first event
// A node's agent is ready to start these workers.
struct NodeReady {
  std::string node;
  std::vector<Slot> slots;
  NodeFacts facts = {};
};
struct NodeReport {
  std::string node;
  NodeEvent event;
};
// A node's agent has gone silent, has exited, or cannot be started.
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
// The run folder was moved or deleted.
struct FolderLost {
  absl::Status why;
};
struct Interrupted {
  std::string reason;
  // Whether the user pressed Ctrl-C. The second Ctrl-C stops without saving; the third also skips the grace
  // period.
  bool by_hand = false;
};
struct Settled {};  // reply to Settle
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
// Record the generation on disk before its workers start, so the next launcher does not reuse it.
// GenerationRecorded follows.
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
// Find the newest checkpoint and wait for pending disk operations. Settled follows.
struct Settle {};
// Check that a restart would find the same run folder and data. RestartChecked follows.
struct CheckRestart {};
// The job is over. `outcome` is an error if the job could not be run.
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
    bool is_ready = false;  // whether its agent accepts commands
    // Whether it was told to start this attempt's workers and has not yet reported their end.
    bool is_active = false;
    bool shows_stacks = false;  // whether it was asked for stacks and has not yet replied
    int first_rank = 0;
    std::optional<std::string> lost;  // why the node was lost, if it was
    absl::Duration retry_at = absl::InfiniteDuration();
  };
  struct Rank {
    std::string member;
    int node = 0;
    int worker = 0;  // index among its node's workers
    bool has_left = false;
    bool ended = false;
    std::optional<int> exit_code = {};
    std::optional<Activity> activity = {};  // last reply, until it is used
    bool is_asked = false;
  };
  struct Result {
    JobOutcome::Kind kind = JobOutcome::Kind::kFinished;
    int64_t generation = 0;
    Failure failure;               // set for kFailed
    std::optional<int> exit_code;  // exit code to use if no worker's exit code is known
    std::string log_tail;
    absl::Status not_started;  // error if the job could not be run
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
  std::string MissingNodes() const;  // with the reason for each
  // Returns whether all nodes meet the job's requirements. If not, concludes that the job could not be run.
  bool CheckFacts(Actions& out);
  void HandleStop(const Notice& notice, Actions& out);
  void HandleFailure(absl::Duration now, const Notice& notice, Actions& out);
  void AskForStacks(absl::Duration now, Actions& out);
  void LookForHangs(absl::Duration now, Actions& out);
  Activity ActivityOf(int rank, Actions& out);
  // Closes the attempt with a result of this kind. Returns false if it already has a result.
  bool Close(JobOutcome::Kind kind);
  void EndAttempt(absl::Duration grace, Actions& out);
  void MaybeSettle(Actions& out);
  void Tell(const Node& node, decltype(NodeCommand::what) what, Actions& out) const;
  void ConcludeWith(JobOutcome outcome, Actions& out);
  Node* FindNode(const std::string& name);
  int RankOf(const std::string& member) const;  // -1 if it is not a member
  FailureFacts Facts() const;

  void SetReady(Node& node, bool is_ready);
  void SetActive(Node& node, bool is_active);

  const SupervisorOptions options_;
  Phase phase_ = Phase::kIdle;
  int64_t attempt_ = 0;
  std::vector<Node> nodes_;
  std::map<std::string, size_t> node_of_;  // indices into nodes_, by name
  size_t num_ready_ = 0;                   // number of nodes_ that are ready
  size_t num_active_ = 0;
  std::vector<Rank> ranks_;             // ranks of this attempt
  std::map<std::string, int> rank_of_;  // ranks by member
  std::optional<Result> result_;        // result of this attempt, once it is known
  int64_t generation_ = 0;              // generation of this attempt
  bool is_recorded_ = false;            // whether every worker has received its rank and was told to start
  absl::Duration node_deadline_ = absl::InfiniteDuration();
  std::optional<Watchdog> watchdog_;
  std::map<int, Standing> boards_;  // boards by rank
  int hung_ = -1;                   // rank that the watchdog found to hang; -1 for none
  size_t num_showing_ = 0;          // number of nodes that have not yet reported their stacks
  absl::Duration stacks_deadline_ = absl::InfiniteDuration();
  StopMode stop_ = StopMode::kNone;
  std::string stop_reason_;  // reason of the first stop request
  int num_interrupts_ = 0;
  int64_t checkpoint_step_;
  int64_t num_restarts_ = 0;  // number of restarts during this launch
  std::optional<FailureFacts> previous_;
  int64_t restarts_used_ = 0;  // number of restarts since the last new checkpoint
  RestartDecision restart_;    // decision that RestartChecked has yet to confirm
};

}  // namespace trainctl::rendezvous
