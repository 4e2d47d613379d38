// Random histories: members join, die one by one or several at once, are replaced, hang, fall silent, finish;
// messages both ways are delayed, lost, doubled and reordered; a stop is requested at any time; the launcher
// is slow to record, stands still, or is killed and started again. Whatever happens, the invariants of
// coordinator.h hold, nobody is blamed in a kind world, and there the job runs and ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rendezvous/coordinator.h"
#include "tests/unit/num_cases.h"

namespace trainctl::rendezvous {
namespace {

const Timeouts kTimeouts = Timeouts::FromDetect(absl::Seconds(3));

// A worker that does what rpc::WorkerClient does, in virtual time. Where that one would lose its connection,
// this one loses single messages and joins again.
struct SimulatedMember {
  int64_t incarnation = 1;
  bool alive = true;
  int64_t acked_generation = 0;
  int64_t running_generation = 0;
  DirectiveKind directive = DirectiveKind::kNone;
  bool left = false;
  bool reported = false;
  bool end_seen = false;  // the agent has told of its end
  absl::Duration next_send;
};

class Simulation {
 public:
  Simulation(uint64_t seed, int num_members)
      : random_(seed), num_members_(num_members), coordinator_(std::in_place, kTimeouts, 1, 0) {
    StartAttempt();
  }

  // Chaos for a while, then none: the job runs, goes on running, is told of a stop, notices that one falls
  // silent, and ends.
  void Run() {
    for (int i = 0; i < 3000 && !testing::Test::HasFailure(); ++i) Step();
    chaos_ = false;
    for (int i = 0; i < 700; ++i) Step();  // what chaos began takes its course
    for (int i = 0; i < 15000 && !AllRun() && !testing::Test::HasFailure(); ++i) Step();
    if (testing::Test::HasFailure()) return;
    settled_ = true;
    ASSERT_TRUE(AllRun()) << "stuck";
    const int64_t generation = coordinator_->generation();
    for (int i = 0; i < 500 && !testing::Test::HasFailure(); ++i) Step();
    ASSERT_TRUE(AllRun());
    ASSERT_EQ(coordinator_->generation(), generation) << "a healthy job was not left alone";
    CheckSilence();
    if (!testing::Test::HasFailure()) CheckEnd();
  }

 private:
  struct Message {
    absl::Duration arrival;
    Event event;
  };
  struct Answer {
    absl::Duration arrival;
    Command command;
    uint64_t hash;
  };

  bool Chance(double probability) { return std::uniform_real_distribution<>(0, 1)(random_) < probability; }
  int Below(int bound) { return std::uniform_int_distribution<>(0, bound - 1)(random_); }
  static std::string Name(int i) { return absl::StrCat("n/", i); }
  MemberId Id(int i) const { return {Name(i), members_[i].incarnation}; }

  bool AllRun() const {
    if (!coordinator_->running()) return false;
    for (const SimulatedMember& member : members_) {
      if (!member.alive || member.running_generation != coordinator_->generation()) return false;
      if (member.left || member.directive != WantedDirective()) return false;
    }
    return true;
  }

  DirectiveKind WantedDirective() const {
    switch (coordinator_->stop()) {
      case StopMode::kNone:
        return DirectiveKind::kNone;
      case StopMode::kAfterSave:
        return DirectiveKind::kStopAfterSave;
      case StopMode::kNow:
        return DirectiveKind::kAbort;
    }
    return DirectiveKind::kNone;
  }

  // What the launcher does: all processes are new.
  void StartAttempt() {
    Expect expect;
    for (int i = 0; i < num_members_; ++i) expect.slots.push_back({Name(i), "n", i, 1, {}});
    members_.resize(num_members_);
    for (SimulatedMember& member : members_) {
      const int64_t incarnation = member.incarnation + 1;
      member = {};
      member.incarnation = incarnation;
      member.next_send = now_;
    }
    acks_.clear();
    ended_ = false;
    // The agent tells of an exit, or of a hang, before it starts the next process in that place.
    pending_.remove_if([](const Message& message) {
      return std::holds_alternative<Exited>(message.event) || std::holds_alternative<Hung>(message.event);
    });
    Apply(coordinator_->Decide(now_, expect));
  }

  // Another launch on the same run folder: it knows what is recorded, and no word of before reaches it.
  void RestartLauncher() {
    coordinator_.emplace(kTimeouts, 1, recorded_.empty() ? 0 : *recorded_.rbegin());
    prepared_.clear();
    pending_.clear();
    failed_ = false;
    StartAttempt();
  }

  void Step() {
    now_ += absl::Milliseconds(20);
    if (chaos_ && Chance(0.002)) now_ += absl::Seconds(Below(20));  // the coordinator stands still
    if (chaos_ && Chance(0.002)) RestartLauncher();
    if (chaos_ && Chance(0.001)) {
      pending_.push_back({now_, StopRequest{Chance(0.5) ? StopMode::kAfterSave : StopMode::kNow, "signal"}});
    }
    if (chaos_ && Chance(0.001)) {  // a node dies, with its agent or without
      const bool agent_lives = Chance(0.5);
      for (int i = 0; i < num_members_; ++i) {
        if (Chance(0.5)) Kill(i, agent_lives);
      }
    }
    for (int i = 0; i < num_members_; ++i) ActAs(i);
    for (auto it = pending_.begin(); it != pending_.end();) {
      if (it->arrival > now_) {
        ++it;
        continue;
      }
      const Event event = it->event;
      it = pending_.erase(it);
      Deliver(event);
    }
    for (auto it = answers_.begin(); it != answers_.end();) {
      if (it->arrival > now_) {
        ++it;
        continue;
      }
      const Answer answer = *it;
      it = answers_.erase(it);
      Obey(answer);
    }
    Deliver(Tick{});
    if (failed_ || ended_) {
      failed_ = false;
      StartAttempt();
    }
  }

  void Kill(int i, bool told) {
    if (!members_[i].alive) return;
    members_[i].alive = false;
    if (!told && !members_[i].left) return;  // the agent of one that has left is there to the end
    members_[i].end_seen = true;
    Exited exited{Name(i), Chance(0.1), Chance(0.5), "died"};
    exited.killed = exited.crashed && Chance(0.5);
    exited.echo = !exited.crashed && Chance(0.3);
    Send(exited, /*reliable=*/true);
  }

  void ActAs(int i) {
    SimulatedMember& member = members_[i];
    // Dies; the agent may be slow to tell, or gone as well.
    if (chaos_ && Chance(0.0005)) Kill(i, Chance(0.7));
    if (chaos_ && member.alive && !member.left &&
        Chance(0.0003)) {  // another process takes its place, unheard
      const int64_t incarnation = member.incarnation + 1;
      member = {};
      member.incarnation = incarnation;
    }
    if (chaos_ && Chance(0.0003)) member.next_send = now_ + absl::Seconds(Below(10));  // silent
    if (chaos_ && member.alive && Chance(0.0002)) {
      Send(Hung{Name(i), "stood still", {Below(100), "step"}}, /*reliable=*/true);
    }
    // Work ends for all at about the same time.
    const bool done = chaos_ ? Chance(0.0005) : !settled_ && AnyLeft();
    if (done && member.alive && member.running_generation != 0 && !member.left && !member.reported)
      LeaveAs(i);
    if (!settled_ && member.left && Chance(0.01)) Kill(i, /*told=*/true);
    if (!member.alive || now_ < member.next_send) return;
    member.next_send = now_ + absl::Milliseconds(500);
    const MemberId id = Id(i);
    // One without answers joins again; so does one whose connection broke, which it does not know.
    if (member.acked_generation == 0 || (member.running_generation == 0 ? Chance(0.5) : Chance(0.1))) {
      Send(Join{id, 1}, /*reliable=*/false);
    } else {
      Send(Heartbeat{id, member.running_generation, {Below(100), "step"}}, /*reliable=*/false);
    }
    if (chaos_ && !member.left && Chance(0.001)) {
      member.reported = true;
      Send(ReportFailure{id, member.running_generation, {i, 1, "", "broken", Chance(0.5)}},
           /*reliable=*/false);
    }
  }

  bool AnyLeft() const {
    return std::any_of(members_.begin(), members_.end(), [](const auto& member) { return member.left; });
  }

  void LeaveAs(int i) {
    SimulatedMember& member = members_[i];
    member.left = true;
    Send(LeaveOf(i), /*reliable=*/false);
  }

  absl::Duration Delay() { return absl::Milliseconds(chaos_ ? Below(400) : 1); }
  int Copies(bool reliable) {
    if (chaos_ && !reliable && Chance(0.1)) return 0;
    return chaos_ && Chance(0.05) ? 2 : 1;
  }
  void Send(const Event& event, bool reliable) {
    const int copies = Copies(reliable);
    for (int i = 0; i < copies; ++i) pending_.push_back({now_ + Delay(), event});
  }

  // The id and the generation that a message of a worker names.
  static std::optional<std::pair<MemberId, int64_t>> SenderOf(const Event& event) {
    if (const auto* join = std::get_if<Join>(&event)) return std::pair(join->id, int64_t{0});
    if (const auto* ack = std::get_if<Ack>(&event)) return std::pair(ack->id, ack->generation);
    if (const auto* beat = std::get_if<Heartbeat>(&event)) return std::pair(beat->id, beat->generation);
    if (const auto* leave = std::get_if<Leave>(&event)) return std::pair(leave->id, leave->generation);
    if (const auto* report = std::get_if<ReportFailure>(&event)) {
      return std::pair(report->id, report->generation);
    }
    return std::nullopt;
  }

  std::map<std::string, MemberView> Views() const {
    std::map<std::string, MemberView> views;
    for (MemberView& view : coordinator_->Members(now_)) views[view.slot.member] = view;
    return views;
  }

  // What anybody can see of the coordinator, but for the time.
  std::string Picture() const {
    std::string picture = absl::StrCat(coordinator_->phase_name(), " ", coordinator_->generation());
    for (const MemberView& view : coordinator_->Members(now_)) {
      absl::StrAppend(&picture, "; ", view.incarnation, " ", view.rank, " ", view.state, " ",
                      view.progress.step, " ", view.progress.phase);
    }
    return picture;
  }

  void Deliver(const Event& event) {
    const int64_t before = coordinator_->generation();
    const bool was_running = coordinator_->running();
    const auto sender = SenderOf(event);
    const std::string picture = sender ? Picture() : "";
    const int64_t incarnation = sender ? Views().at(sender->first.member).incarnation : 0;
    if (const Recorded* recorded = std::get_if<Recorded>(&event)) recorded_.insert(recorded->generation);
    if (const Ack* ack = std::get_if<Ack>(&event)) {
      if (ack->hash == coordinator_->assignment_hash() && ack->generation == before) {
        acks_[ack->generation].insert(absl::StrCat(ack->id.member, "@", ack->id.incarnation));
      }
    }
    const Decision decision = coordinator_->Decide(now_, event);
    EXPECT_GE(coordinator_->generation(), before);
    if (coordinator_->generation() != before) CheckAssignment();
    if (sender) {
      const auto& [id, generation] = *sender;
      const bool of_old_life = id.incarnation < incarnation;
      const bool of_old_generation = generation != 0 && generation < before;
      if (of_old_life || of_old_generation) {
        EXPECT_EQ(Picture(), picture) << "changed by a message of the past: " << decision.reason;
        EXPECT_TRUE(decision.notices.empty()) << decision.reason;
      }
      for (const Command& command : decision.commands) {
        EXPECT_TRUE(!of_old_life || (command.kind == Command::Kind::kReject && !command.rejoin));
      }
      EXPECT_TRUE(!of_old_life || decision.commands.size() == 1) << "it was not told that it is of the past";
    }
    CheckDecision(event, decision, was_running);
    Apply(decision);
  }

  void CheckDecision(const Event& event, const Decision& decision, bool was_running) {
    std::set<std::string> go;
    std::map<std::string, DirectiveKind> directives;
    for (const Command& command : decision.commands) {
      EXPECT_EQ(command.generation, coordinator_->generation());
      if (command.kind == Command::Kind::kGo) go.insert(command.to.member);
      if (command.kind == Command::Kind::kDirective) directives[command.to.member] = command.directive.kind;
    }
    for (const std::string& member : go) {
      EXPECT_EQ(directives.contains(member), coordinator_->stop() != StopMode::kNone)
          << "a stop that was requested before is told with go";
    }
    const auto views = decision.notices.empty() ? std::map<std::string, MemberView>() : Views();
    for (const Notice& notice : decision.notices) {
      if (notice.kind == Notice::Kind::kStopRequested) continue;
      EXPECT_EQ(notice.generation, coordinator_->generation());
      if (notice.kind == Notice::Kind::kFailed) {
        EXPECT_TRUE(!settled_ || silenced_) << "blamed in a kind world: " << decision.reason;
        EXPECT_FALSE(failed_) << "an attempt fails once";
        const int rank = notice.failure.rank;  // -1 of what happened before there was one
        EXPECT_TRUE(rank == -1 || rank == views.at(notice.member).rank);
        const std::string& state = views.at(notice.member).state;
        EXPECT_TRUE(state != "finished" && state != "stopped") << "blamed though its work is done and saved";
        if (!was_running) continue;
        for (const MemberView& view : coordinator_->Members(now_)) {
          const bool done = view.state == "finished" || view.state == "stopped" || view.state == "exited";
          const bool is_told =
              !done && !std::holds_alternative<Hung>(event);  // of a hang all show their stacks
          EXPECT_EQ(directives.contains(view.slot.member), is_told);
          EXPECT_EQ(directives[view.slot.member], is_told ? DirectiveKind::kAbort : DirectiveKind::kNone);
        }
      } else if (notice.kind == Notice::Kind::kPrepared) {
        EXPECT_TRUE(prepared_.insert(notice.generation).second) << "to be recorded twice";
      } else if (notice.kind == Notice::Kind::kFinished) {
        EXPECT_FALSE(ended_) << "a job ends once";
        bool stopped = false;
        for (const MemberView& view : coordinator_->Members(now_)) {
          EXPECT_TRUE(view.state == "finished" || view.state == "stopped") << view.state;
          EXPECT_TRUE(members_[view.slot.worker_id].end_seen) << "it may live";
          EXPECT_TRUE(members_[view.slot.worker_id].left);
          stopped = stopped || view.state == "stopped";
        }
        EXPECT_EQ(notice.stopped, stopped);
      } else if (notice.kind == Notice::Kind::kProgress || notice.kind == Notice::Kind::kLeft) {
        EXPECT_TRUE(was_running);
        EXPECT_EQ(notice.rank, views.at(notice.member).rank);
      }
    }
  }

  void CheckAssignment() {
    const auto assignment = ParseAssignment(coordinator_->assignment_bytes());
    ASSERT_TRUE(assignment.ok());
    EXPECT_EQ(assignment->generation, coordinator_->generation());
    ASSERT_EQ(static_cast<int>(assignment->members.size()), num_members_);
    std::set<std::string> names;
    for (int rank = 0; rank < num_members_; ++rank) {
      EXPECT_EQ(assignment->members[rank].rank, rank);
      EXPECT_TRUE(names.insert(assignment->members[rank].slot.member).second);
    }
    EXPECT_FALSE(told_to_go_.contains(coordinator_->generation())) << "generation used twice";
    assignments_[coordinator_->generation()] = *assignment;
    acks_.erase(coordinator_->generation());
  }

  void Apply(const Decision& decision) {
    for (const Command& command : decision.commands) {
      CheckCommand(command);
      const int copies = Copies(/*reliable=*/false);
      for (int i = 0; i < copies; ++i) {
        answers_.push_back({now_ + Delay(), command, coordinator_->assignment_hash()});
      }
    }
    for (const Notice& notice : decision.notices) {
      if (notice.kind == Notice::Kind::kFailed) {
        failed_ = true;
        blamed_ = notice.member;
      }
      if (notice.kind == Notice::Kind::kFinished) ended_ = true;
      if (notice.kind == Notice::Kind::kPrepared) {  // the disk takes its time
        pending_.push_back(
            {now_ + absl::Milliseconds(chaos_ ? Below(2000) : 5), Recorded{notice.generation}});
      }
    }
  }

  void CheckCommand(const Command& command) {
    if (command.kind == Command::Kind::kGo) {
      told_to_go_.insert(command.generation);
      EXPECT_TRUE(recorded_.contains(command.generation)) << "go before the generation was recorded";
      for (const AssignedMember& member : assignments_.at(command.generation).members) {
        EXPECT_TRUE(
            acks_[command.generation].contains(absl::StrCat(member.slot.member, "@", member.incarnation)))
            << member.slot.member << " had not acknowledged generation " << command.generation;
      }
    }
    if (command.kind == Command::Kind::kReject) {
      for (int i = 0; i < num_members_; ++i) {
        if (command.to.member != Name(i) || command.to.incarnation != members_[i].incarnation) continue;
        // A worker that is not asked to come back ends.
        const std::string phase = coordinator_->phase_name();
        EXPECT_TRUE(command.rejoin || !members_[i].alive || phase == "failed" || phase == "finished")
            << command.reason;
      }
    }
  }

  void Obey(const Answer& answer) {
    const Command& command = answer.command;
    for (int i = 0; i < num_members_; ++i) {
      SimulatedMember& member = members_[i];
      if (command.to.member != Name(i) || command.to.incarnation != member.incarnation || !member.alive)
        continue;
      switch (command.kind) {
        case Command::Kind::kPrepare:
          if (command.generation < member.acked_generation) break;
          member.acked_generation = command.generation;
          Send(Ack{Id(i), command.generation, answer.hash}, /*reliable=*/false);
          break;
        case Command::Kind::kGo:
          if (command.generation == member.acked_generation) member.running_generation = command.generation;
          break;
        case Command::Kind::kReject:
          if (member.running_generation == 0) member.acked_generation = 0;
          break;
        case Command::Kind::kDirective:
          member.directive = std::max(member.directive, command.directive.kind);
          break;
      }
    }
  }

  // In a kind world, one dies and nobody tells.
  void CheckSilence() {
    const int dead = Below(num_members_);
    const absl::Duration died = now_;
    members_[dead].alive = false;
    silenced_ = true;
    while (blamed_at_ < died && now_ < died + absl::Minutes(1)) {
      blamed_.clear();
      Step();
      if (!blamed_.empty()) blamed_at_ = now_;
    }
    EXPECT_EQ(blamed_, Name(dead));
    // Its last words are at most one interval, and the way, older than its end.
    EXPECT_GT(blamed_at_ - died, kTimeouts.detect - absl::Milliseconds(560));
    EXPECT_LE(blamed_at_ - died, kTimeouts.detect + absl::Milliseconds(60));
    silenced_ = false;
  }

  void CheckEnd() {
    for (int i = 0; i < 2000 && !AllRun() && !testing::Test::HasFailure(); ++i) Step();
    ASSERT_TRUE(AllRun()) << "stuck in the second attempt";
    std::vector<int> order(num_members_);
    for (int i = 0; i < num_members_; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random_);
    for (const int i : order) {
      ASSERT_FALSE(ended_);
      LeaveAs(i);
      if (Chance(0.3)) LeaveAs(i);
      const int wait = Below(300);
      for (int k = 0; k < wait; ++k) Step();
      ASSERT_FALSE(ended_ || failed_);
    }
    ASSERT_FALSE(ended_);
    std::shuffle(order.begin(), order.end(), random_);
    for (size_t k = 0; k < order.size(); ++k) {
      members_[order[k]].alive = false;
      members_[order[k]].end_seen = true;
      now_ += absl::Milliseconds(5);
      if (k == 0) Deliver(Tick{});
      Deliver(LeaveOf(order[k]));
      Deliver(Exited{Name(order[k]), true, false, "exited with code 0"});
      ASSERT_EQ(ended_, k + 1 == order.size());
    }
    EXPECT_EQ(coordinator_->phase_name(), "finished");
  }

  Leave LeaveOf(int i) const {
    const bool stopped = members_[i].directive != DirectiveKind::kNone;
    return {Id(i), members_[i].running_generation, stopped ? LeaveKind::kStopped : LeaveKind::kFinished};
  }

  std::mt19937_64 random_;
  const int num_members_;
  absl::Duration now_ = absl::Seconds(1);
  std::optional<Coordinator> coordinator_;  // of the launcher that lives
  std::vector<SimulatedMember> members_;
  std::list<Message> pending_;  // delivering one may add others
  std::list<Answer> answers_;
  std::map<int64_t, Assignment> assignments_;
  std::map<int64_t, std::set<std::string>> acks_;
  std::set<int64_t> recorded_;  // on disk: outlives the launcher
  std::set<int64_t> told_to_go_;
  std::set<int64_t> prepared_;  // said by this coordinator
  std::string blamed_;          // last
  absl::Duration blamed_at_;
  bool failed_ = false;
  bool ended_ = false;
  bool settled_ = false;
  bool silenced_ = false;
  bool chaos_ = true;
};

// The end of a job of which rank 0 fails first, in a random order of what is heard of its ranks.
class Downfall {
 public:
  enum class Cause { kReported, kExited, kCrashed, kKilled };

  Downfall(uint64_t seed, Cause cause)
      : random_(seed), cause_(cause), num_members_(static_cast<int>(2 + seed % 5)) {
    Expect expect;
    for (int i = 0; i < num_members_; ++i) expect.slots.push_back({Name(i), "n", i, 1, {}});
    coordinator_.Decide(now_, expect);
    for (int i = 0; i < num_members_; ++i) coordinator_.Decide(now_, Join{Id(i), 1});
    for (int i = 0; i < num_members_; ++i) {
      coordinator_.Decide(now_, Ack{Id(i), coordinator_.generation(), coordinator_.assignment_hash()});
    }
    coordinator_.Decide(now_, Recorded{coordinator_.generation()});
  }

  // Who is blamed. All is heard within the time that a report waits for a better one.
  std::vector<int> BlamedRanks() {
    std::vector<std::vector<Event>> told(num_members_);  // of each member, in its order
    told[0] = FirstFailure();
    for (int i = 1; i < num_members_; ++i) told[i] = Following(i);
    while (std::any_of(told.begin(), told.end(), [](const auto& events) { return !events.empty(); })) {
      Hear(told, static_cast<int>(random_() % num_members_));
    }
    for (int i = 0; i < 100; ++i) {
      now_ += absl::Milliseconds(50);
      Give(Tick{});
    }
    return blamed_;
  }

 private:
  static std::string Name(int i) { return absl::StrCat("n/", i); }
  static MemberId Id(int i) { return {Name(i), 1}; }
  static Exited Crash(int i) { return {Name(i), false, true, "killed by SIGSEGV (11)"}; }
  static Exited ExitOf(int i, int code) {
    return {Name(i), false, false, absl::StrCat("exited with code ", code)};
  }

  std::vector<Event> FirstFailure() {
    switch (cause_) {
      case Cause::kReported: {
        std::vector<Event> events = {Report(0, "disk full", /*peer_failed=*/false)};
        events.push_back(random_() % 2 == 0 ? Crash(0) : ExitOf(0, 4));
        return events;
      }
      case Cause::kExited:
        return {ExitOf(0, 3)};
      case Cause::kCrashed:
        return {Crash(0)};
      case Cause::kKilled:
        return {Exited{Name(0), false, true, "killed by SIGKILL (9)", {-1, ""}, false, /*killed=*/true}};
    }
    return {};
  }

  // Words, or none, and an end that only follow from rank 0's: it waited for rank 0. Its words may not know
  // that.
  std::vector<Event> Following(int i) {
    std::vector<Event> events;
    if (random_() % 2 == 0) events.push_back(Report(i, "connection closed", random_() % 2 == 0));
    Exited end = random_() % 2 == 0 ? Crash(i) : ExitOf(i, 4);
    end.waited = true;
    end.echo = !end.crashed && random_() % 2 == 0;
    events.push_back(end);
    return events;
  }

  Event Report(int i, const std::string& message, bool peer_failed) const {
    return ReportFailure{Id(i), coordinator_.generation(), {i, 1, "", message, peer_failed}};
  }

  void Hear(std::vector<std::vector<Event>>& told, int i) {
    if (told[i].empty()) return;
    now_ += absl::Milliseconds(10);
    Give(told[i].front());
    told[i].erase(told[i].begin());
    Give(Tick{});
  }

  void Give(const Event& event) {
    for (const Notice& notice : coordinator_.Decide(now_, event).notices) {
      if (notice.kind == Notice::Kind::kFailed) blamed_.push_back(notice.failure.rank);
    }
  }

  std::mt19937_64 random_;
  const Cause cause_;
  const int num_members_;
  absl::Duration now_ = absl::Seconds(1);
  Coordinator coordinator_{kTimeouts, 1, 0};
  std::vector<int> blamed_;
};

TEST(SimulationTest, WhoFailedFirstIsBlamedOnceInAnyOrder) {
  for (uint64_t seed = 1; seed <= NumCases<uint64_t>(3000); ++seed) {
    for (const auto cause : {Downfall::Cause::kReported, Downfall::Cause::kExited, Downfall::Cause::kCrashed,
                             Downfall::Cause::kKilled}) {
      EXPECT_EQ(Downfall(seed, cause).BlamedRanks(), std::vector<int>{0})
          << "seed " << seed << ", cause " << static_cast<int>(cause);
    }
    ASSERT_FALSE(testing::Test::HasFailure());
  }
}

TEST(SimulationTest, InvariantsHoldAndTheJobRunsAndEnds) {
  for (uint64_t seed = 1; seed <= NumCases<uint64_t>(100); ++seed) {
    const int num_members = 1 + static_cast<int>(seed % 7);
    Simulation(seed, num_members).Run();
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace trainctl::rendezvous
