// Random histories: members join, die, are replaced, fall silent; messages are delayed, lost, doubled and
// reordered; the launcher is slow to record, or is killed and started again. Whatever happens, the invariants
// of coordinator.h hold, and once the world is kind again the job runs.
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

namespace trainctl::rendezvous {
namespace {

const Timeouts kTimeouts = Timeouts::FromDetect(absl::Seconds(3));

// A worker that does what rpc::WorkerClient does, in virtual time.
struct SimulatedMember {
  int64_t incarnation = 1;
  bool alive = true;
  int64_t acked_generation = 0;
  int64_t running_generation = 0;
  absl::Duration next_send;
};

class Simulation {
 public:
  Simulation(uint64_t seed, int num_members)
      : random_(seed), num_members_(num_members), coordinator_(std::in_place, kTimeouts, 0) {
    StartAttempt();
  }

  // Chaos for a while, then none; true if the job runs in the end.
  bool Run() {
    for (int i = 0; i < 3000 && !testing::Test::HasFailure(); ++i) Step();
    chaos_ = false;
    for (int i = 0; i < 2000 && !AllRun() && !testing::Test::HasFailure(); ++i) Step();
    return AllRun();
  }

 private:
  struct Message {
    absl::Duration arrival;
    Event event;
  };

  bool Chance(double probability) { return std::uniform_real_distribution<>(0, 1)(random_) < probability; }
  int Below(int bound) { return std::uniform_int_distribution<>(0, bound - 1)(random_); }
  static std::string Name(int i) { return absl::StrCat("n/", i); }

  bool AllRun() const {
    if (!coordinator_->running()) return false;
    for (const SimulatedMember& member : members_) {
      if (!member.alive || member.running_generation != coordinator_->generation()) return false;
    }
    return true;
  }

  // What the launcher does: all processes are new.
  void StartAttempt() {
    Expect expect;
    for (int i = 0; i < num_members_; ++i) expect.slots.push_back({Name(i), "n", i, 1, {}});
    members_.resize(num_members_);
    for (SimulatedMember& member : members_) {
      member = {member.incarnation + 1, true, 0, 0, now_};
    }
    acks_.clear();
    // The agent tells of an exit before it starts the next process in that place.
    pending_.remove_if([](const Message& message) { return std::holds_alternative<Exited>(message.event); });
    Apply(coordinator_->Decide(now_, expect));
  }

  // Another launch on the same run folder: it knows what is recorded, and no word of before reaches it.
  void RestartLauncher() {
    coordinator_.emplace(kTimeouts, recorded_.empty() ? 0 : *recorded_.rbegin());
    pending_.clear();
    failed_ = false;
    StartAttempt();
  }

  void Step() {
    now_ += absl::Milliseconds(20);
    if (chaos_ && Chance(0.002)) now_ += absl::Seconds(Below(20));  // the coordinator stands still
    if (chaos_ && Chance(0.002)) RestartLauncher();
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
    Deliver(Tick{});
    if (failed_) {
      failed_ = false;
      StartAttempt();
    }
  }

  void ActAs(int i) {
    SimulatedMember& member = members_[i];
    if (chaos_ && member.alive && Chance(0.0005)) {  // dies; the agent may be slow to tell
      member.alive = false;
      Send(Exited{Name(i), Chance(0.1), Chance(0.5), "died"}, /*reliable=*/true);
    }
    if (chaos_ && Chance(0.0003)) member.next_send = now_ + absl::Seconds(Below(10));  // silent
    if (!member.alive || now_ < member.next_send) return;
    member.next_send = now_ + absl::Milliseconds(500);
    const MemberId id{Name(i), member.incarnation};
    if (member.acked_generation == 0) {
      Send(Join{id, 1}, /*reliable=*/false);
    } else {
      Send(Heartbeat{id, member.running_generation, {Below(100), "step"}}, /*reliable=*/false);
    }
    if (chaos_ && Chance(0.001)) {
      Send(ReportFailure{id, member.running_generation, {i, 1, "", "broken", Chance(0.5)}},
           /*reliable=*/false);
    }
  }

  void Send(const Event& event, bool reliable) {
    if (chaos_ && !reliable && Chance(0.1)) return;
    const int copies = chaos_ && Chance(0.05) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      pending_.push_back({now_ + absl::Milliseconds(chaos_ ? Below(400) : 1), event});
    }
  }

  void Deliver(const Event& event) {
    const int64_t before = coordinator_->generation();
    if (const Recorded* recorded = std::get_if<Recorded>(&event)) recorded_.insert(recorded->generation);
    if (const Ack* ack = std::get_if<Ack>(&event)) {
      if (ack->hash == coordinator_->assignment_hash() && ack->generation == before) {
        acks_[ack->generation].insert(absl::StrCat(ack->id.member, "@", ack->id.incarnation));
      }
    }
    const Decision decision = coordinator_->Decide(now_, event);
    EXPECT_GE(coordinator_->generation(), before);
    if (coordinator_->generation() != before) CheckAssignment();
    Apply(decision);
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
    for (const Command& command : decision.commands) Obey(command);
    for (const Notice& notice : decision.notices) {
      if (notice.kind == Notice::Kind::kFailed) failed_ = true;
      if (notice.kind == Notice::Kind::kPrepared) {  // the disk takes its time
        pending_.push_back(
            {now_ + absl::Milliseconds(chaos_ ? Below(2000) : 5), Recorded{notice.generation}});
      }
    }
  }

  void Obey(const Command& command) {
    if (command.kind == Command::Kind::kGo) {
      told_to_go_.insert(command.generation);
      EXPECT_TRUE(recorded_.contains(command.generation)) << "go before the generation was recorded";
      for (const AssignedMember& member : assignments_.at(command.generation).members) {
        EXPECT_TRUE(
            acks_[command.generation].contains(absl::StrCat(member.slot.member, "@", member.incarnation)))
            << member.slot.member << " had not acknowledged generation " << command.generation;
      }
    }
    for (int i = 0; i < num_members_; ++i) {
      SimulatedMember& member = members_[i];
      if (command.to.member != Name(i) || command.to.incarnation != member.incarnation || !member.alive)
        continue;
      switch (command.kind) {
        case Command::Kind::kPrepare:
          if (command.generation < member.acked_generation) break;
          member.acked_generation = command.generation;
          to_ack_.push_back(
              {{Name(i), member.incarnation}, command.generation, coordinator_->assignment_hash()});
          break;
        case Command::Kind::kGo:
          if (command.generation == member.acked_generation) member.running_generation = command.generation;
          break;
        case Command::Kind::kReject:
          // A worker that is not asked to come back ends.
          EXPECT_TRUE(command.rejoin || coordinator_->phase_name() == "failed") << command.reason;
          if (member.running_generation == 0) member.acked_generation = 0;
          break;
        case Command::Kind::kDirective:
          break;
      }
    }
    for (const Ack& ack : to_ack_) Send(ack, /*reliable=*/false);
    to_ack_.clear();
  }

  std::mt19937_64 random_;
  const int num_members_;
  absl::Duration now_ = absl::Seconds(1);
  std::optional<Coordinator> coordinator_;  // of the launcher that lives
  std::vector<SimulatedMember> members_;
  std::list<Message> pending_;  // delivering one may add others
  std::map<int64_t, Assignment> assignments_;
  std::map<int64_t, std::set<std::string>> acks_;
  std::set<int64_t> recorded_;  // on disk: outlives the launcher
  std::set<int64_t> told_to_go_;
  std::vector<Ack> to_ack_;
  bool failed_ = false;
  bool chaos_ = true;
};

// The end of a job of which rank 0 fails first, in a random order of what is heard of its ranks.
class Downfall {
 public:
  enum class Cause { kReported, kCrashed, kKilled };

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
    // A cause that is reported is heard before what follows from it; a death may be seen after that.
    if (cause_ == Cause::kReported) Hear(told, 0);
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

  std::vector<Event> FirstFailure() {
    switch (cause_) {
      case Cause::kReported: {
        std::vector<Event> events = {Report(0, "disk full", /*peer_failed=*/false)};
        events.push_back(random_() % 2 == 0 ? Crash(0) : Exited{Name(0), false, false, "exited with code 4"});
        return events;
      }
      case Cause::kCrashed:
        return {Crash(0)};
      case Cause::kKilled:
        return {Exited{Name(0), false, true, "killed by SIGKILL (9)", {-1, ""}, false, /*killed=*/true}};
    }
    return {};
  }

  // Words, or none, and an end that only follow from rank 0's.
  std::vector<Event> Following(int i) {
    std::vector<Event> events;
    const bool speaks = random_() % 2 == 0;
    // A broken connection that was not known as one is explained by SIGKILL alone.
    const bool unmarked = cause_ == Cause::kKilled && random_() % 2 == 0;
    if (speaks) events.push_back(Report(i, "connection closed", !unmarked));
    // Without words, a crash in its own end cannot be told from rank 0's.
    if (random_() % 2 == 0 && (speaks || cause_ == Cause::kReported)) {
      events.push_back(Crash(i));
    } else {
      events.push_back(Exited{Name(i), false, false, "exited with code 4", {-1, ""}, /*echo=*/true});
    }
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
  Coordinator coordinator_{kTimeouts, 0};
  std::vector<int> blamed_;
};

TEST(SimulationTest, WhoFailedFirstIsBlamedOnceInAnyOrder) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    for (const auto cause :
         {Downfall::Cause::kReported, Downfall::Cause::kCrashed, Downfall::Cause::kKilled}) {
      EXPECT_EQ(Downfall(seed, cause).BlamedRanks(), std::vector<int>{0})
          << "seed " << seed << ", cause " << static_cast<int>(cause);
    }
    ASSERT_FALSE(testing::Test::HasFailure());
  }
}

TEST(SimulationTest, InvariantsHoldAndTheJobRunsInTheEnd) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const int num_members = 1 + static_cast<int>(seed % 7);
    EXPECT_TRUE(Simulation(seed, num_members).Run()) << "stuck with seed " << seed;
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace trainctl::rendezvous
