// Whole jobs in virtual time: the supervisor, the coordinator, the agents of the nodes and workers that do
// nothing but keep step. Workers die, hang and fall silent, nodes are lost and come back, keepers are lost,
// messages between nodes and coordinator are late (in order for each node), a person stops the job, the disk
// is slow. Whatever happens, the invariants hold (Check... below), and the job ends once there are no faults.
//
// Without chance, a process ends in one way at one moment, and how long it takes until all nodes know is read
// off the clock.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "rendezvous/agent.h"
#include "rendezvous/coordinator.h"
#include "rendezvous/supervisor.h"
#include "rendezvous/worker_session.h"
#include "tests/unit/num_cases.h"

namespace trainctl::rendezvous {
namespace {

constexpr absl::Duration kStep = absl::Milliseconds(20);
constexpr absl::Duration kChaos = absl::Seconds(60);  // there are faults for so long
constexpr absl::Duration kBound = absl::Minutes(10);  // for the end of the job after that
constexpr absl::Duration kStopTimeout = absl::Seconds(4);
constexpr absl::Duration kStacksTimeout = absl::Seconds(5);
constexpr int64_t kLastStep = 100;
enum class Fault { kNone, kCrash, kKill, kExit, kReport, kHang, kSilence, kKeeper, kNode };

// The end of one process, the only fault.
struct PlannedEnd {
  ExitStatus exit;
  bool speaks = false;  // of a failure of its own, before
  bool waits = false;   // for others, by its board
  bool is_seen = true;  // by the others, whose connections break; else they wait on
  int rank = 0;
  absl::Duration at;
};

// What a seed brings.
struct Plan {
  int num_nodes = 1;
  int num_workers = 1;     // on each node
  bool one_fault = false;  // in each attempt: then it is known whose failure is to be named
  absl::Duration detect = absl::Seconds(3);
  std::optional<PlannedEnd> end = {};
};

class JobSimulation {
 public:
  JobSimulation(uint64_t seed, Plan plan)
      : random_(seed), plan_(plan), coordinator_(Timeouts::FromDetect(plan.detect), 2, 7) {
    SupervisorOptions options;
    for (int i = 0; i < plan_.num_nodes; ++i) {
      nodes_.push_back({.name = absl::StrCat("n", i)});
      options.nodes.push_back(nodes_.back().name);
    }
    options.stop_timeout = kStopTimeout;
    options.stacks_timeout = kStacksTimeout + coordinator_.timeouts().detect;
    options.node_timeout = absl::Seconds(30);
    options.watchdog.at_first = options.watchdog.floor = absl::Seconds(5);
    options.watchdog.most = options.watchdog.collective = absl::Seconds(20);
    options.watchdog.stop = kStopTimeout;
    supervisor_.emplace(options);
    if (plan_.end) return;
    if (Chance(0.5)) stop_at_ = absl::Milliseconds(Below(60'000));
    if (Chance(0.05)) folder_lost_at_ = absl::Milliseconds(Below(60'000));
  }

  void Run() {
    Decide(Begin{});
    while (!outcome_ && now_ < kChaos + kBound && !testing::Test::HasFailure()) Step();
    if (testing::Test::HasFailure()) return;
    ASSERT_TRUE(outcome_) << "the job does not end";
    CheckOutcome();
    DismissNodes();
    for (const absl::Duration end = now_ + absl::Seconds(30); now_ < end;) Step();
    for (const Node& node : nodes_) EXPECT_EQ(NumAlive(node), 0) << "an orphan on " << node.name;
  }

  // From the planned end to the last of the other nodes that hears of it.
  absl::Duration TimeUntilAllKnow() {
    Decide(Begin{});
    const int end_node = plan_.end->rank / plan_.num_workers;
    const auto all_know = [&] {
      for (int i = 0; i < plan_.num_nodes; ++i) {
        if (i != end_node && !nodes_[static_cast<size_t>(i)].knows_at) return false;
      }
      return true;
    };
    while (!all_know() && now_ < plan_.end->at + absl::Minutes(1)) {
      EXPECT_TRUE(now_ < plan_.end->at - absl::Seconds(1) || ended_at_ || coordinator_.running());
      Step();
    }
    absl::Duration last = absl::ZeroDuration();
    for (int i = 0; i < plan_.num_nodes; ++i) {
      if (i == end_node) continue;
      last = std::max(last, nodes_[static_cast<size_t>(i)].knows_at.value_or(absl::InfiniteDuration()));
    }
    return ended_at_ ? last - *ended_at_ : absl::InfiniteDuration();
  }

  const std::optional<absl::StatusOr<JobOutcome>>& outcome() const { return outcome_; }
  int64_t num_attempts() const { return attempt_; }
  const std::set<Fault>& faults() const { return faults_seen_; }

 private:
  // A process that trains, in lock step with the others of its attempt.
  struct Worker {
    std::string member;
    std::optional<WorkerSession> session = {};
    int64_t attempt = 0;
    int rank = 0;
    bool alive = true;
    bool stuck = false;  // in the kernel, once it is killed
    bool ignores_sigterm = false;
    bool hung = false, silent = false;
    bool ended_from_outside = false;  // its agent ends it
    int64_t step = 0;
    bool blocked = false;
    bool waited = false;  // when its end came
    std::optional<LeaveKind> left;
    absl::Duration next_message, next_step;
    absl::Duration exit_at = absl::InfiniteDuration();
    ExitStatus exit;

    int64_t generation() const { return session->running() ? session->generation() : 0; }
  };
  struct FromWorker {
    Event event;
  };
  struct ForWorker {
    MemberId to;
    WorkerOrder order;
  };
  using Up = std::variant<std::vector<Slot>, NodeEvent, FromWorker>;
  using Down = std::variant<NodeCommand, ForWorker>;
  template <typename T>
  struct Late {
    absl::Duration arrival;
    T what;
  };
  struct Node {
    std::string name;
    std::optional<Agent> agent = {};
    bool is_linked = false;  // to the coordinator
    std::vector<Worker> workers = {};
    std::deque<Late<Up>> up = {};
    std::deque<Late<Down>> down = {};
    std::deque<Late<AgentEvent>> host = {};  // what the host of the agent will see
    absl::Duration boards_at = absl::ZeroDuration();
    absl::Duration starts_at = absl::InfiniteDuration();    // a new agent
    absl::Duration missed_at = absl::InfiniteDuration();    // the supervisor hears that it is lost
    absl::Duration gives_up_at = absl::InfiniteDuration();  // the agent
    std::optional<absl::Duration> knows_at = {};            // that the attempt is over
    int64_t told_attempt = 0;
    int64_t ended_attempt = 0;
  };

  bool Chance(double probability) { return std::uniform_real_distribution<>(0, 1)(random_) < probability; }
  int Below(int bound) { return std::uniform_int_distribution<>(0, bound - 1)(random_); }
  absl::Duration Within(double seconds) {
    return absl::Milliseconds(Below(static_cast<int>(1000 * seconds)));
  }
  bool chaos() const { return !plan_.end && now_ < kChaos && !outcome_; }

  static bool IsActive(const Worker& worker) { return worker.alive && !worker.stuck; }
  static int NumAlive(const Node& node) {
    int num = 0;
    for (const Worker& worker : node.workers) num += IsActive(worker) ? 1 : 0;
    return num;
  }
  Node& NodeOf(const std::string& name) { return nodes_[static_cast<size_t>(std::stoi(name.substr(1)))]; }
  template <typename F>
  void ForEachWorker(const F& f) {
    for (Node& node : nodes_) {
      for (Worker& worker : node.workers) f(node, worker);
    }
  }

  void Step() {
    now_ += kStep;
    for (Node& node : nodes_) StepNode(node);
    if (now_ >= next_tick_) {
      next_tick_ = now_ + absl::Milliseconds(60);
      Tell(coordinator_.Decide(now_, Tick{}));
    }
    if (outcome_ || now_ < next_look_) return;
    next_look_ = now_ + absl::Milliseconds(chaos() && Chance(0.02) ? Below(500) : 40);  // a busy machine
    StepLauncher();
  }

  // ---- the launcher: what launcher::JobRunner does
  void StepLauncher() {
    while (now_ >= stop_at_ && now_ < kChaos) {
      Decide(Interrupted{"SIGINT", /*by_hand=*/Chance(0.7)});
      stop_at_ = Chance(0.7) ? now_ + Within(1) : absl::InfiniteDuration();
    }
    for (const Notice& notice : std::exchange(notices_, {})) Decide(notice);
    for (const SupervisorEvent& event : std::exchange(news_, {})) Decide(event);
    Decide(SupervisorTick{});
    for (auto it = recording_.begin(); it != recording_.end();) {
      if (it->second > now_) {
        ++it;
        continue;
      }
      recorded_.insert(it->first);
      const int64_t generation = it->first;
      it = recording_.erase(it);
      Decide(GenerationRecorded{generation});
    }
    if (now_ >= folder_lost_at_) Decide(FolderLost{EnvironmentError("the folder is lost")});
    if (checkpoint_ > supervisor_->checkpoint_step()) Decide(CheckpointSeen{checkpoint_});
  }

  void Decide(SupervisorEvent event) {
    events_.push_back(std::move(event));
    if (std::exchange(is_deciding_, true)) return;
    while (!events_.empty()) {
      const SupervisorEvent next = std::move(events_.front());
      events_.pop_front();
      for (const SupervisorAction& action : supervisor_->Decide(now_, next)) {
        std::visit([&](const auto& what) { Do(what); }, action);
      }
    }
    is_deciding_ = false;
  }

  void Do(const ToNode& action) {
    Node& node = NodeOf(action.node);
    if (std::holds_alternative<StartWorkers>(action.command.what)) {
      CheckStart(action.command.attempt);
      if (action.command.attempt > attempt_) BeginAttempt(action.command.attempt);
      node.told_attempt = action.command.attempt;
    }
    SendDown(node, action.command);
  }
  void Do(const StartAgent& action) { NodeOf(action.node).starts_at = now_ + Within(2); }
  void Do(const ToCoordinator& action) { Tell(coordinator_.Decide(now_, action.event)); }
  void Do(const RecordGeneration& action) {
    EXPECT_EQ(action.world_size, plan_.num_nodes * plan_.num_workers);
    recording_[action.generation] = now_ + Within(chaos() ? 1 : 0.05);
  }
  void Do(const RecordStop&) {}
  void Do(const RecordCheckpoint& action) { EXPECT_EQ(action.step, checkpoint_); }
  void Do(const RecordFailure& action) { CheckCulprit(action.facts); }
  void Do(const RecordRestart&) {}
  void Do(const Say&) {}
  void Do(const ShowProgress&) {}
  void Do(const Settle&) { Decide(Settled{}); }
  void Do(const CheckRestart&) {
    Decide(RestartChecked{Chance(0.01) ? EnvironmentError("the data set has changed") : absl::OkStatus()});
  }
  void Do(const Conclude& action) {
    EXPECT_FALSE(outcome_) << "the job ends once";
    outcome_ = action.outcome;
    for (const Node& node : nodes_) {
      EXPECT_TRUE(!node.is_linked || NumAlive(node) == 0) << "active after the end on " << node.name;
    }
  }

  // The coordinator's decision.
  void Tell(const Decision& decision) {
    for (const Command& command : decision.commands) {
      if (command.kind == Command::Kind::kGo) {
        EXPECT_TRUE(recorded_.contains(command.generation)) << "they go before it is recorded";
      }
      Node& node = NodeOf(command.to.member.substr(0, command.to.member.find('/')));
      SendDown(node, ForWorker{command.to, OrderOf(command)});
    }
    notices_.insert(notices_.end(), decision.notices.begin(), decision.notices.end());
  }

  WorkerOrder OrderOf(const Command& command) const {
    switch (command.kind) {
      case Command::Kind::kPrepare:
        return Prepared{command.generation, coordinator_.assignment_bytes(), coordinator_.assignment_hash()};
      case Command::Kind::kGo:
        return Went{command.generation};
      case Command::Kind::kDirective:
        return Directed{command.directive.kind, command.directive.reason, command.generation};
      case Command::Kind::kReject:
        return Rejected{command.reason, command.rejoin};
    }
    return Rejected{};
  }

  // ---- the network
  absl::Duration Delay() { return absl::Milliseconds(chaos() && Chance(0.2) ? Below(400) : 1); }
  template <typename T, typename W>
  void Send(std::deque<Late<T>>& queue, W what) {
    absl::Duration arrival = now_ + Delay();
    if (!queue.empty()) arrival = std::max(arrival, queue.back().arrival);
    queue.push_back({arrival, std::move(what)});
  }
  void SendDown(Node& node, Down what) {
    if (node.is_linked) Send(node.down, std::move(what));
  }
  void SendUp(Node& node, Up what) {
    if (node.is_linked) Send(node.up, std::move(what));
  }
  template <typename T>
  std::optional<T> TakeArrived(std::deque<Late<T>>& queue) {
    if (queue.empty() || queue.front().arrival > now_) return std::nullopt;
    T what = std::move(queue.front().what);
    queue.pop_front();
    return what;
  }

  // The connection breaks; `dies`: as its agent, and all it keeps, have ended.
  void LoseNode(Node& node, bool dies) {
    node.is_linked = false;
    node.up.clear();
    node.down.clear();
    node.missed_at = now_ + Within(dies ? 2 : 3);
    if (!dies) {
      node.gives_up_at = now_ + absl::Seconds(3.5) + Within(3);  // launch.coordinator_timeout
      return;
    }
    node.agent.reset();
    node.host.clear();
    for (Worker& worker : node.workers) worker.alive = false;
  }

  // ---- a node: what launcher::AgentRunner and launcher::NodeHost do
  void StepNode(Node& node) {
    while (const auto up = TakeArrived(node.up)) {
      if (const auto* words = std::get_if<FromWorker>(&*up)) {
        Tell(coordinator_.Decide(now_, words->event));
      } else if (const auto* slots = std::get_if<std::vector<Slot>>(&*up)) {
        news_.push_back(NodeReady{node.name, *slots});
      } else {
        news_.push_back(NodeReport{node.name, std::get<NodeEvent>(*up)});
      }
    }
    if (now_ >= node.missed_at) {
      node.missed_at = absl::InfiniteDuration();
      news_.push_back(NodeLost{node.name, "silent"});
    }
    if (now_ >= node.starts_at) StartNode(node);
    while (const auto down = TakeArrived(node.down)) {
      if (!node.knows_at && IsTheEnd(*down)) node.knows_at = now_;
      if (const auto* command = std::get_if<NodeCommand>(&*down)) {
        GiveAgent(node, *command);
      } else {
        Obey(node, std::get<ForWorker>(*down));
      }
    }
    if (now_ >= node.gives_up_at && node.agent) {
      GiveAgent(node, NodeCommand{node.agent->attempt(), EndWorkers{kStopTimeout}});
      if (node.agent->is_idle()) {
        node.agent.reset();
        node.host.clear();
        node.gives_up_at = absl::InfiniteDuration();
      }
    }
    for (size_t i = 0; i < node.workers.size(); ++i) StepWorker(node, i);
    if (!node.agent) return;
    while (const auto event = TakeArrived(node.host)) GiveAgent(node, *event);
    GiveAgent(node, AgentTick{});
    if (!node.agent->is_idle() && now_ >= node.boards_at) ShowBoards(node);
    if (chaos() && node.is_linked) {
      if (Chance(0.0002)) Inject(node, nullptr, Chance(0.5) ? Fault::kNode : Fault::kKeeper);
    }
  }

  static bool IsTheEnd(const Down& down) {
    if (const auto* command = std::get_if<NodeCommand>(&down)) {
      return std::holds_alternative<EndWorkers>(command->what);
    }
    const auto* directed = std::get_if<Directed>(&std::get<ForWorker>(down).order);
    return directed != nullptr && directed->kind == DirectiveKind::kAbort;
  }

  // Once the one before has ended.
  void StartNode(Node& node) {
    if (node.agent) return;
    node.starts_at = absl::InfiniteDuration();
    if (chaos() && Chance(attempt_ == 0 ? 0.01 : 0.2)) {
      news_.push_back(NodeLost{node.name, "no route to host"});
      return;
    }
    node.agent.emplace(AgentOptions{.stop_timeout = kStopTimeout, .stacks_timeout = kStacksTimeout});
    node.is_linked = true;
    std::vector<Slot> slots;
    for (int i = 0; i < plan_.num_workers; ++i) {
      slots.push_back({absl::StrCat(node.name, "/", i), node.name, i, 1, {}});
    }
    SendUp(node, slots);
  }

  void GiveAgent(Node& node, const AgentEvent& event) {
    if (!node.agent) return;
    for (const AgentAction& action : node.agent->Decide(now_, event)) {
      std::visit([&](const auto& what) { Carry(node, what); }, action);
    }
  }
  void Later(Node& node, absl::Duration delay, AgentEvent event) {
    auto it = node.host.end();
    while (it != node.host.begin() && std::prev(it)->arrival > now_ + delay) --it;
    node.host.insert(it, {now_ + delay, std::move(event)});
  }

  void Carry(Node& node, const SpawnWorkers& action) {
    CheckStart(node.agent->attempt());
    EXPECT_EQ(NumAlive(node), 0) << "two attempts on " << node.name;
    node.workers.clear();
    if (chaos() && Chance(0.005)) {
      return Later(node, kStep, ProcessNotStarted{EnvironmentError("no such program")});
    }
    for (const Slot& slot : action.slots) {
      Worker worker;
      worker.member = slot.member;
      worker.attempt = node.agent->attempt();
      worker.session.emplace(MemberId{slot.member, worker.attempt}, 1);
      worker.rank = action.first_rank + static_cast<int>(node.workers.size());
      worker.step = std::max<int64_t>(supervisor_->checkpoint_step(), 0);
      worker.next_message = now_ + Within(1);
      worker.ignores_sigterm = chaos() && Chance(0.05);
      node.workers.push_back(worker);
    }
  }
  void Carry(Node& node, const SignalWorker& action) {
    if (node.workers.empty()) return;
    Worker& worker = node.workers[static_cast<size_t>(action.worker)];
    if (action.signal_number == SIGTERM) worker.ended_from_outside = true;
    if (action.signal_number == SIGKILL) EndWorker(worker, {true, SIGKILL}, kStep);
    const bool obeys = !worker.ignores_sigterm && !worker.hung && !worker.silent;
    if (action.signal_number == SIGTERM && obeys) EndWorker(worker, {true, SIGTERM}, Within(2));
  }
  void Carry(Node& node, const TakeStacks& action) {
    if (!chaos() || Chance(0.8)) Later(node, Within(2), StacksTaken{});
  }
  void Carry(Node& node, const DropStacks&) {}
  void Carry(Node& node, const LookForActivity& action) {
    const bool idle = node.workers[static_cast<size_t>(action.worker)].hung;
    Later(node, Within(1), ActivityFound{action.worker, idle ? Activity::kIdle : Activity::kBusy});
  }
  void Carry(Node& node, const KillProcesses&) {
    if (chaos() && Chance(0.02)) return;  // the keeper does nothing any more
    bool is_stuck = false;
    for (size_t i = 0; i < node.workers.size(); ++i) {
      Worker& worker = node.workers[i];
      worker.ended_from_outside = true;
      if (worker.alive && chaos() && Chance(0.02)) {
        worker.stuck = is_stuck = true;
        Later(node, absl::Seconds(5), ProcessStuck{static_cast<pid_t>(100 + i), static_cast<int>(i)});
      } else {
        EndWorker(worker, {true, SIGKILL}, kStep);
      }
    }
    if (!is_stuck) Later(node, 5 * kStep, ProcessesGone{});
  }
  void Carry(Node& node, const KillKeeper&) { LoseKeeper(node); }
  void Carry(Node& node, const KillOrphans&) {
    for (Worker& worker : node.workers) worker.alive = false;
  }
  void Carry(Node& node, const FinishAttempt& action) {
    EXPECT_GT(action.attempt, node.ended_attempt) << "an attempt ends once on a node";
    node.ended_attempt = action.attempt;
    EXPECT_EQ(NumAlive(node), 0) << "active after the end of the attempt";
    node.host.clear();
    SendUp(node, NodeEvent{action.attempt, NodeEnded{"", action.keeper_lost}});
  }
  void Carry(Node& node, const rendezvous::Tell& action) { SendUp(node, action.event); }

  void LoseKeeper(Node& node) {
    for (Worker& worker : node.workers) worker.alive = false;
    node.host.clear();
    Later(node, kStep, KeeperLost{});
  }

  void ShowBoards(Node& node) {
    node.boards_at = now_ + absl::Milliseconds(200);
    BoardsSeen seen;
    for (size_t i = 0; i < node.workers.size(); ++i) {
      const Worker& worker = node.workers[i];
      if (!worker.alive || worker.left) continue;
      const auto entered = static_cast<uint64_t>(worker.step + (worker.blocked && !worker.hung ? 1 : 0));
      seen.boards[static_cast<int>(i)] = {.step = worker.step,
                                          .phase = "step",
                                          .beats = static_cast<uint64_t>(worker.step),
                                          .is_waiting = worker.blocked && !worker.hung,
                                          .groups = {{.index = 0, .entered = entered}}};
    }
    SendUp(node, NodeEvent{node.agent->attempt(), seen});
  }

  // ---- a worker
  void EndWorker(Worker& worker, ExitStatus exit, absl::Duration delay) {
    if (!worker.alive || now_ + delay >= worker.exit_at) return;
    worker.exit_at = now_ + delay;
    worker.exit = exit;
  }

  void Speak(Node& node, const Event& event) { SendUp(node, FromWorker{event}); }

  void Speak(Node& node, Worker& worker) {
    std::visit([&](const auto& words) { Speak(node, Event(words)); }, worker.session->TakeWords());
  }
  void SpeakAll(Node& node, Worker& worker) {
    while (worker.session->HasWords()) Speak(node, worker);
  }

  void StepWorker(Node& node, size_t index) {
    Worker& worker = node.workers[index];
    if (!IsActive(worker)) return;
    if (plan_.end && !ended_at_ && worker.rank == plan_.end->rank && now_ >= plan_.end->at) {
      EndAsPlanned(node, worker);
    }
    if (now_ >= worker.exit_at) {
      worker.alive = false;
      if (!node.agent) return;
      ProcessExited exited;
      exited.worker = static_cast<int>(index);
      exited.exit = worker.exit;
      exited.last = {worker.step, "step"};
      exited.waited = worker.waited;
      return Later(node, absl::ZeroDuration(), exited);
    }
    if (chaos() && Chance(0.0003)) {
      const Fault faults[] = {Fault::kCrash,  Fault::kKill, Fault::kExit,
                              Fault::kReport, Fault::kHang, Fault::kSilence};
      Inject(node, &worker, faults[Below(6)]);
    }
    if (worker.silent || worker.exit_at < absl::InfiniteDuration()) return;
    if (now_ >= worker.next_message) {
      worker.next_message = now_ + coordinator_.timeouts().heartbeat_interval;
      Speak(node, worker);
    }
    SpeakAll(node, worker);
    if (worker.hung || worker.left || !worker.session->running()) return;
    if (worker.session->directive().kind == DirectiveKind::kAbort) {
      return EndWorker(worker, {false, 4}, Within(1));
    }
    if (now_ >= worker.next_step) Train(node, worker);
  }

  void EndAsPlanned(Node& node, Worker& worker) {
    ended_at_ = now_;
    if (plan_.end->speaks) {
      (void)worker.session->Say(Failure{-1, worker.step, "", "disk full", false});
      SpeakAll(node, worker);
    }
    worker.waited = plan_.end->waits;
    EndWorker(worker, plan_.end->exit, absl::ZeroDuration());
  }

  void Train(Node& node, Worker& worker) {
    worker.next_step = now_ + absl::Milliseconds(200);
    worker.blocked = false;
    bool peer_lost = false;
    ForEachWorker([&](const Node&, const Worker& other) {
      if (other.attempt != worker.attempt || other.left) return;
      peer_lost = peer_lost || (!other.alive && (!plan_.end || plan_.end->is_seen));
      worker.blocked = worker.blocked || !other.alive;
      if (other.step < worker.step || other.generation() != worker.generation()) worker.blocked = true;
    });
    if (peer_lost) {
      worker.waited = true;
      if (Chance(0.2)) return EndWorker(worker, {true, SIGABRT}, Within(0.5));
      if (Chance(0.7)) {
        (void)worker.session->Say(Failure{-1, worker.step, "", "connection closed", true});
        SpeakAll(node, worker);
      }
      return EndWorker(worker, {false, 4}, Within(0.5));
    }
    if (worker.blocked) return;
    const DirectiveKind directive = worker.session->directive().kind;
    if (directive == DirectiveKind::kStopAfterSave && stop_step_ < 0) stop_step_ = MaxStep() + 1;
    const bool stops = stop_step_ >= 0 && worker.step >= stop_step_ && worker.step < kLastStep;
    if (worker.step < kLastStep && !stops) {
      ++worker.step;
      worker.session->Report({worker.step, "step"});
      // Commits as the first one passes: all have the step before.
      if (worker.step % 10 == 1 && Chance(0.2)) checkpoint_ = std::max(checkpoint_, worker.step - 1);
      return;
    }
    worker.left = stops ? LeaveKind::kStopped : LeaveKind::kFinished;
    (void)worker.session->Say(*worker.left);
    SpeakAll(node, worker);
    const bool stays = chaos() && Chance(0.05);  // its agent has to end it
    if (!stays) EndWorker(worker, {false, stops ? 75 : 0}, Within(1));
  }

  int64_t MaxStep() {
    int64_t most = 0;
    ForEachWorker([&](const Node&, const Worker& worker) { most = std::max(most, worker.step); });
    return most;
  }

  void Obey(Node& node, const ForWorker& told) {
    for (Worker& worker : node.workers) {
      if (told.to.member != worker.member || told.to.incarnation != worker.attempt) continue;
      if (!IsActive(worker) || worker.silent) continue;
      worker.session->Receive(told.order);
      if (!worker.session->lost().empty()) EndWorker(worker, {false, 4}, Within(0.5));
    }
  }

  // ---- faults
  void BeginAttempt(int64_t attempt) {
    attempt_ = attempt;
    culprit_ = {};
    stop_step_ = -1;
  }

  void Inject(Node& node, Worker* worker, Fault fault) {
    const bool at_work = !node.agent->is_idle() && node.agent->attempt() == attempt_ &&
                         std::none_of(node.workers.begin(), node.workers.end(),
                                      [](const Worker& each) { return each.ended_from_outside; });
    if (plan_.one_fault && (culprit_ || !at_work)) return;
    if (worker != nullptr && (worker->left || worker->exit_at < absl::InfiniteDuration())) return;
    if (fault == Fault::kKeeper && node.agent->is_idle()) return;
    if (!culprit_) culprit_ = Culprit{fault, node.name, worker == nullptr ? -1 : worker->rank};
    faults_seen_.insert(fault);
    switch (fault) {
      case Fault::kNone:
        return;
      case Fault::kCrash:
        return EndWorker(*worker, {true, SIGSEGV}, kStep);
      case Fault::kKill:
        return EndWorker(*worker, {true, SIGKILL}, kStep);
      case Fault::kExit:
        return EndWorker(*worker, {false, 1}, kStep);
      case Fault::kReport:
        (void)worker->session->Say(Failure{-1, worker->step, "", "disk full", false});
        SpeakAll(node, *worker);
        return EndWorker(*worker, Chance(0.5) ? ExitStatus{false, 4} : ExitStatus{true, SIGSEGV},
                         Within(0.2));
      case Fault::kHang:
        worker->hung = true;
        return;
      case Fault::kSilence:
        worker->silent = true;
        return;
      case Fault::kKeeper:
        return LoseKeeper(node);
      case Fault::kNode:
        return LoseNode(node, /*dies=*/Chance(0.3));
    }
  }

  void DismissNodes() {
    for (Node& node : nodes_) {
      if (!node.is_linked) continue;
      GiveAgent(node, NodeCommand{node.agent->attempt(), EndWorkers{kStopTimeout}});
      EXPECT_TRUE(node.agent->is_idle());
    }
  }

  // ---- invariants
  // Nobody of an attempt is started before all of the ones before have ended, but on lost nodes.
  void CheckStart(int64_t attempt) {
    for (const Node& node : nodes_) {
      for (const Worker& worker : node.workers) {
        EXPECT_TRUE(!node.is_linked || !IsActive(worker) || worker.attempt == attempt)
            << "attempt " << attempt << " is started while " << worker.attempt << " is active on "
            << node.name;
      }
    }
  }

  void CheckCulprit(const FailureFacts& facts) {
    if (!plan_.one_fault || now_ >= folder_lost_at_) return;
    ASSERT_TRUE(culprit_) << "a failure without a fault: " << facts.message;
    const auto& [fault, node, rank] = *culprit_;
    const std::string what =
        absl::StrCat("fault ", static_cast<int>(fault), " of ", node, " ", rank, ": ", Describe(facts));
    switch (fault) {
      case Fault::kKeeper:
        EXPECT_EQ(facts.rank, -1) << what;
        EXPECT_NE(facts.message.find("trainctl-keeper"), std::string::npos) << what;
        return;
      case Fault::kNode:
        EXPECT_EQ(facts.rank / plan_.num_workers, std::stoi(node.substr(1))) << what;
        return;
      default:
        EXPECT_EQ(facts.rank, rank) << what;
    }
  }

  void CheckOutcome() {
    if (!outcome_->ok() || (*outcome_)->kind != JobOutcome::Kind::kFinished) return;
    ForEachWorker([&](const Node& node, const Worker& worker) {
      if (worker.attempt != attempt_) return;
      EXPECT_EQ(worker.left, LeaveKind::kFinished) << worker.member;
      EXPECT_EQ(worker.step, kLastStep);
    });
  }

  struct Culprit {
    Fault fault = Fault::kNone;
    std::string node;
    int rank = -1;
  };

  std::mt19937_64 random_;
  const Plan plan_;
  absl::Duration now_ = absl::ZeroDuration();
  absl::Duration stop_at_ = absl::InfiniteDuration();
  absl::Duration folder_lost_at_ = absl::InfiniteDuration();
  Coordinator coordinator_;
  std::optional<Supervisor> supervisor_;
  std::vector<Node> nodes_;
  std::vector<Notice> notices_;
  std::vector<SupervisorEvent> news_;
  std::deque<SupervisorEvent> events_;
  bool is_deciding_ = false;
  absl::Duration next_tick_, next_look_;
  std::map<int64_t, absl::Duration> recording_;
  std::set<int64_t> recorded_;
  int64_t checkpoint_ = -1;
  int64_t attempt_ = 0;
  int64_t stop_step_ = -1;          // that the workers have agreed on
  std::optional<Culprit> culprit_;  // the first of the attempt
  std::set<Fault> faults_seen_;
  std::optional<absl::Duration> ended_at_;  // as planned
  std::optional<absl::StatusOr<JobOutcome>> outcome_;
};

class Tally {
 public:
  void Run(uint64_t seed, Plan plan) {
    JobSimulation job(seed, plan);
    job.Run();
    if (testing::Test::HasFailure()) return;
    faults_.insert(job.faults().begin(), job.faults().end());
    most_attempts_ = std::max(most_attempts_, job.num_attempts());
    ++outcomes_[job.outcome()->ok() ? static_cast<int>((*job.outcome())->kind) : -1];
  }
  // A simulation in which nothing happens checks nothing.
  void CheckCoverage() const {
    EXPECT_EQ(faults_.size(), 8u);
    EXPECT_GE(most_attempts_, 4);
    for (int kind = -1; kind <= 3; ++kind) EXPECT_TRUE(outcomes_.contains(kind)) << kind;
    for (const auto& [kind, count] : outcomes_) {
      testing::Test::RecordProperty(absl::StrCat("outcome_", kind), count);
    }
  }

 private:
  std::set<Fault> faults_;
  int64_t most_attempts_ = 0;
  std::map<int, int> outcomes_;
};

TEST(JobSimulationTest, AJobWithManyFaultsKeepsTheInvariantsAndEnds) {
  Tally tally;
  for (uint64_t seed = 1; seed <= NumCases<uint64_t>(100); ++seed) {
    tally.Run(seed, {1 + static_cast<int>(seed % 4), 1 + static_cast<int>(seed / 4 % 3), false});
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  if (NumCases(100) == 100) tally.CheckCoverage();
}

TEST(JobSimulationTest, WhoFailedFirstIsNamed) {
  Tally tally;
  for (uint64_t seed = 1; seed <= NumCases<uint64_t>(100); ++seed) {
    tally.Run(seed, {1 + static_cast<int>(seed % 4), 1 + static_cast<int>(seed / 4 % 3), true});
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  if (NumCases(100) == 100) tally.CheckCoverage();
}

// At every point of the beats and ticks that it may fall on, on any of the nodes.
absl::Duration LongestUntilAllKnow(PlannedEnd end) {
  absl::Duration longest = absl::ZeroDuration();
  for (int i = 0; i < NumCases(60); ++i) {
    end.rank = i % 6;
    end.at = absl::Seconds(6) + i * kStep;
    Plan plan{.num_nodes = 3, .num_workers = 2, .detect = absl::Seconds(10), .end = end};
    longest = std::max(longest, JobSimulation(static_cast<uint64_t>(i), plan).TimeUntilAllKnow());
  }
  return longest;
}

// A worker ends with 4 because another has failed: unless it has spoken of itself, the other is waited for.
TEST(JobSimulationTest, AnEndIsKnownOnAllNodesWithinHalfASecond) {
  for (const bool is_seen : {false, true}) {
    for (const ExitStatus exit : {ExitStatus{false, 0}, ExitStatus{false, 1}, ExitStatus{false, 3},
                                  ExitStatus{false, 75}, ExitStatus{true, SIGTERM}, ExitStatus{true, SIGABRT},
                                  ExitStatus{true, SIGSEGV}, ExitStatus{true, SIGKILL}}) {
      EXPECT_LE(LongestUntilAllKnow({.exit = exit, .is_seen = is_seen}), absl::Seconds(0.5))
          << exit.Describe() << (is_seen ? "" : ", and nobody else notices");
    }
    EXPECT_LE(LongestUntilAllKnow({.exit = {false, 4}, .speaks = true, .is_seen = is_seen}),
              absl::Seconds(0.5));
    EXPECT_LE(LongestUntilAllKnow({.exit = {true, SIGKILL}, .waits = true, .is_seen = is_seen}),
              absl::Seconds(0.5))
        << "whatever it did, SIGKILL comes from outside";
  }
}

// It may have been the end of another that ended it, so that all others have to be heard first.
TEST(JobSimulationTest, AnEndOfOneThatWaitedIsKnownOnAllNodesWithinASecond) {
  for (const bool is_seen : {false, true}) {
    for (const ExitStatus exit :
         {ExitStatus{false, 1}, ExitStatus{true, SIGABRT}, ExitStatus{true, SIGSEGV}}) {
      EXPECT_LE(LongestUntilAllKnow({.exit = exit, .waits = true, .is_seen = is_seen}), absl::Seconds(1))
          << exit.Describe() << (is_seen ? "" : ", and nobody else notices");
    }
  }
}

}  // namespace
}  // namespace trainctl::rendezvous
