// What an agent does with its node's processes, by hand: time passes only when a test says so.
#include "rendezvous/agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::rendezvous {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr absl::Duration kStopTimeout = absl::Seconds(30);
constexpr absl::Duration kKeeperPatience = absl::Seconds(15);
constexpr absl::Duration kStacksTimeout = absl::Seconds(10);

class AgentTest : public testing::Test {
 protected:
  // Returns what was decided, which the helpers below look at.
  const std::vector<AgentAction>& Give(const AgentEvent& event) {
    return actions_ = agent_.Decide(now_, event);
  }
  const std::vector<AgentAction>& Order(decltype(NodeCommand::what) what, int64_t attempt = 1) {
    return Give(NodeCommand{attempt, std::move(what)});
  }
  const std::vector<AgentAction>& PassTo(absl::Duration time) {
    now_ = time;
    return Give(AgentTick{});
  }
  void Start(int num_workers, int64_t attempt = 1, int first_rank = 0) {
    StartWorkers start{first_rank, {}};
    for (int i = 0; i < num_workers; ++i) start.slots.push_back({absl::StrCat("a/", i), "a", i, 1, {}});
    Order(start, attempt);
  }
  void Exit(int worker, ExitStatus exit) {
    Give(ProcessExited{worker, exit, {7, "step"}, ", says the kernel"});
  }

  template <typename T>
  std::vector<T> All() const {
    std::vector<T> found;
    for (const AgentAction& action : actions_) {
      if (const T* one = std::get_if<T>(&action)) found.push_back(*one);
    }
    return found;
  }
  // What was told to the coordinator.
  template <typename T>
  std::vector<T> Told() const {
    std::vector<T> found;
    for (const Tell& tell : All<Tell>()) {
      EXPECT_EQ(tell.event.attempt, agent_.attempt());
      if (const T* one = std::get_if<T>(&tell.event.what)) found.push_back(*one);
    }
    return found;
  }
  std::vector<std::pair<int, int>> Signals() const {  // worker, signal
    std::vector<std::pair<int, int>> signals;
    for (const SignalWorker& each : All<SignalWorker>())
      signals.emplace_back(each.worker, each.signal_number);
    return signals;
  }
  bool KillsAll() const { return !All<KillProcesses>().empty(); }
  std::string Message() const {
    const auto messages = Told<NodeMessage>();
    return messages.size() == 1 ? messages[0].text : absl::StrCat(messages.size(), " messages");
  }

  Agent agent_{
      {.stop_timeout = kStopTimeout, .keeper_patience = kKeeperPatience, .stacks_timeout = kStacksTimeout}};
  absl::Duration now_ = absl::ZeroDuration();
  std::vector<AgentAction> actions_;
};

constexpr ExitStatus kDone{false, 0};
constexpr ExitStatus kTerminated{true, SIGTERM};
constexpr ExitStatus kKilled{true, SIGKILL};

// ---- start --------------------------------------------------------------------------------------

TEST_F(AgentTest, StartsAWorkerForEachSlotInTheirOrder) {
  Start(2, 1, 4);
  ASSERT_THAT(actions_, SizeIs(1));
  const auto spawns = All<SpawnWorkers>();
  ASSERT_THAT(spawns, SizeIs(1));
  EXPECT_EQ(spawns[0].first_rank, 4);
  ASSERT_THAT(spawns[0].slots, SizeIs(2));
  EXPECT_EQ(spawns[0].slots[1].member, "a/1");
  EXPECT_FALSE(agent_.is_idle());
  EXPECT_EQ(agent_.next_deadline(), absl::InfiniteDuration());
}

TEST_F(AgentTest, WorkersThatCannotBeStartedEndTheAttemptAtOnce) {
  Start(2);
  Give(ProcessNotStarted{EnvironmentError("no such program")});
  const auto told = Told<WorkersNotStarted>();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_THAT(std::string(told[0].why.message()), HasSubstr("no such program"));
  EXPECT_TRUE(KillsAll()) << "some may have been started";
  Give(ProcessesGone{});
  EXPECT_THAT(All<FinishAttempt>(), SizeIs(1));
  EXPECT_TRUE(agent_.is_idle());
  EXPECT_THAT(Give(ProcessNotStarted{EnvironmentError("no such program")}), IsEmpty()) << "it is over";
}

TEST_F(AgentTest, OrdersOfAnOlderAttemptChangeNothing) {
  Start(1, 1);
  Order(EndWorkers{absl::ZeroDuration()}, 1);
  Give(ProcessesGone{});
  Start(1, 3);
  for (const int64_t attempt : {1, 2}) {
    EXPECT_THAT(Order(EndWorkers{absl::ZeroDuration()}, attempt), IsEmpty());
    EXPECT_THAT(Order(NoteLeft{0}, attempt), IsEmpty());
    EXPECT_THAT(Order(ShowStacks{0}, attempt), IsEmpty());
    EXPECT_THAT(Order(FindActivity{0}, attempt), IsEmpty());
    Start(1, attempt);
    EXPECT_THAT(actions_, IsEmpty());
  }
  Start(1, 3);
  EXPECT_THAT(actions_, IsEmpty()) << "it runs";
  EXPECT_EQ(agent_.attempt(), 3);
  EXPECT_FALSE(agent_.is_idle());
  EXPECT_EQ(agent_.next_deadline(), absl::InfiniteDuration()) << "nobody was said to have left";
}

TEST_F(AgentTest, OrdersOfALaterAttemptThanTheOneThatRunsWaitForItsStart) {
  Start(1, 1);
  EXPECT_THAT(Order(EndWorkers{absl::ZeroDuration()}, 2), IsEmpty());
  EXPECT_EQ(agent_.attempt(), 1);
}

TEST_F(AgentTest, OrdersAfterTheEndOfTheAttemptChangeNothing) {
  Start(1);
  Order(EndWorkers{absl::ZeroDuration()});
  Give(ProcessesGone{});
  EXPECT_THAT(Order(EndWorkers{kStopTimeout}), IsEmpty());
  EXPECT_THAT(Order(ShowStacks{0}), IsEmpty());
  EXPECT_TRUE(agent_.is_idle());
  EXPECT_EQ(agent_.next_deadline(), absl::InfiniteDuration());
}

// ---- the end of workers -------------------------------------------------------------------------

TEST_F(AgentTest, WorkersThatObeyEndWithoutSigkill) {
  Start(2);
  Order(EndWorkers{kStopTimeout});
  EXPECT_THAT(Signals(), ElementsAre(std::pair(0, SIGTERM), std::pair(0, SIGCONT), std::pair(1, SIGTERM),
                                     std::pair(1, SIGCONT)));
  EXPECT_FALSE(KillsAll());
  EXPECT_EQ(agent_.next_deadline(), kStopTimeout);
  Exit(1, kTerminated);
  EXPECT_FALSE(KillsAll()) << "the other has its time";
  Exit(0, kTerminated);
  EXPECT_TRUE(KillsAll()) << "and what they started";
  EXPECT_FALSE(agent_.is_idle());
  Give(ProcessesGone{});
  ASSERT_THAT(actions_, SizeIs(1));
  const auto finished = All<FinishAttempt>();
  ASSERT_THAT(finished, SizeIs(1));
  EXPECT_EQ(finished[0].attempt, 1);
  EXPECT_EQ(finished[0].tail_of, -1);
  EXPECT_FALSE(finished[0].keeper_lost);
  EXPECT_TRUE(agent_.is_idle());
}

TEST_F(AgentTest, AWorkerThatIgnoresSigtermIsKilledAfterTheGrace) {
  Start(2);
  Order(EndWorkers{absl::Seconds(30)});
  Exit(0, kTerminated);
  PassTo(absl::Seconds(29.9));
  EXPECT_THAT(actions_, IsEmpty());
  PassTo(absl::Seconds(30));
  EXPECT_TRUE(KillsAll());
  EXPECT_FALSE(agent_.is_idle()) << "they have not ended yet";
  PassTo(absl::Seconds(31));
  EXPECT_THAT(actions_, IsEmpty()) << "once";
  Exit(1, kKilled);
  EXPECT_FALSE(KillsAll());
  Give(ProcessesGone{});
  EXPECT_THAT(All<FinishAttempt>(), SizeIs(1));
}

TEST_F(AgentTest, WithoutAGraceEverythingIsKilledAtOnce) {
  Start(1);
  Order(EndWorkers{absl::ZeroDuration()});
  EXPECT_TRUE(KillsAll());
}

TEST_F(AgentTest, ALaterOrderToEndOnlyShortensTheGrace) {
  Start(1);
  Order(EndWorkers{absl::Seconds(10)});
  now_ = absl::Seconds(5);
  EXPECT_THAT(Order(EndWorkers{absl::Seconds(30)}), IsEmpty()) << "SIGTERM once";
  EXPECT_EQ(agent_.next_deadline(), absl::Seconds(10));
  EXPECT_THAT(Order(EndWorkers{absl::Seconds(2)}), IsEmpty());
  EXPECT_EQ(agent_.next_deadline(), absl::Seconds(7));
  Order(EndWorkers{absl::ZeroDuration()});
  EXPECT_TRUE(KillsAll());
  EXPECT_THAT(Order(EndWorkers{absl::ZeroDuration()}), IsEmpty()) << "it is under way";
  EXPECT_EQ(agent_.next_deadline(), absl::Seconds(5) + kKeeperPatience);
}

TEST_F(AgentTest, TheTailOfTheLogIsOfTheWorkerThatWasNamedLast) {
  Start(2);
  Order(EndWorkers{absl::Seconds(10), 1});
  Order(EndWorkers{absl::ZeroDuration()});
  Give(ProcessesGone{});
  ASSERT_THAT(All<FinishAttempt>(), SizeIs(1));
  EXPECT_EQ(All<FinishAttempt>()[0].tail_of, 1);

  Start(2, 2);
  Order(EndWorkers{absl::ZeroDuration()}, 2);
  Order(EndWorkers{absl::ZeroDuration(), 0}, 2);
  Give(ProcessesGone{});
  ASSERT_THAT(All<FinishAttempt>(), SizeIs(1));
  EXPECT_EQ(All<FinishAttempt>()[0].tail_of, 0) << "named while all are killed";

  Start(2, 3);
  Order(EndWorkers{absl::ZeroDuration()}, 3);
  Give(ProcessesGone{});
  ASSERT_THAT(All<FinishAttempt>(), SizeIs(1));
  EXPECT_EQ(All<FinishAttempt>()[0].tail_of, -1) << "not that of the attempt before";
}

TEST_F(AgentTest, WorkersThatHaveEndedByThemselvesWaitForTheOrder) {
  Start(2);
  Exit(0, kDone);
  Exit(1, kDone);
  EXPECT_FALSE(KillsAll());
  EXPECT_EQ(agent_.next_deadline(), absl::InfiniteDuration());
  Order(EndWorkers{kStopTimeout});
  EXPECT_TRUE(KillsAll()) << "there is nobody to wait for";
}

TEST_F(AgentTest, TheNextAttemptBeginsWithNothingOfTheOneBefore) {
  Start(2);
  Order(NoteLeft{1});
  Exit(0, kDone);
  Order(EndWorkers{absl::ZeroDuration()});
  Give(ProcessesGone{});
  Start(2, 2);
  EXPECT_EQ(agent_.next_deadline(), absl::InfiniteDuration());
  Exit(0, kDone);
  EXPECT_THAT(Told<WorkerEnded>(), SizeIs(1));
  Order(EndWorkers{absl::Seconds(3)}, 2);
  EXPECT_FALSE(KillsAll()) << "it waits for the other";
  Exit(1, kTerminated);
  EXPECT_TRUE(KillsAll());
}

// ---- how an end is reported ---------------------------------------------------------------------

TEST_F(AgentTest, AnExitIsToldOnceWithAllThatIsKnownOfIt) {
  Start(2);
  Exit(1, {false, 3});
  const auto ended = Told<WorkerEnded>();
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_EQ(ended[0].worker, 1);
  EXPECT_EQ(ended[0].exit_code, 3);
  EXPECT_EQ(ended[0].exited.member, "a/1");
  EXPECT_EQ(ended[0].exited.description, "exited with code 3");
  EXPECT_EQ(ended[0].exited.last.step, 7);
  EXPECT_FALSE(ended[0].exited.clean);
  EXPECT_THAT(Told<NodeMessage>(), IsEmpty());
  Exit(1, {false, 3});
  EXPECT_THAT(actions_, IsEmpty());
}

TEST_F(AgentTest, HowAWorkerEndedTellsWhatItMayExplain) {
  struct Case {
    ExitStatus exit;
    bool clean, crashed, echo, killed;
  };
  const std::vector<Case> cases = {
      {{false, 0}, true, false, false, false},       {{false, 75}, true, false, false, false},
      {{false, 1}, false, false, false, false},      {{false, 4}, false, false, true, false},
      {{true, SIGKILL}, false, true, false, true},   {{true, SIGSEGV}, false, true, false, false},
      {{true, SIGBUS}, false, true, false, false},   {{true, SIGILL}, false, true, false, false},
      {{true, SIGFPE}, false, true, false, false},   {{true, SIGSYS}, false, true, false, false},
      {{true, SIGABRT}, false, false, false, false}, {{true, SIGTERM}, false, false, false, false},
      {{true, 4}, false, true, false, false}};
  Start(static_cast<int>(cases.size()));
  for (size_t i = 0; i < cases.size(); ++i) {
    Exit(static_cast<int>(i), cases[i].exit);
    ASSERT_THAT(Told<WorkerEnded>(), SizeIs(1));
    const WorkerEnded ended = Told<WorkerEnded>()[0];
    const std::string what = cases[i].exit.Describe();
    EXPECT_EQ(ended.exited.clean, cases[i].clean) << what;
    EXPECT_EQ(ended.exited.crashed, cases[i].crashed) << what;
    EXPECT_EQ(ended.exited.echo, cases[i].echo) << what;
    EXPECT_EQ(ended.exited.killed, cases[i].killed) << what;
    EXPECT_EQ(ended.exit_code.has_value(), !cases[i].exit.signaled) << what;
  }
}

TEST_F(AgentTest, WhoseSigkillItMayBeIsToldOnlyWhenItIsNotOurs) {
  Start(3);
  Exit(0, kKilled);
  EXPECT_EQ(Told<WorkerEnded>().at(0).exited.description, "killed by SIGKILL (9), says the kernel");
  Exit(1, {true, SIGSEGV});
  EXPECT_EQ(Told<WorkerEnded>().at(0).exited.description, "killed by SIGSEGV (11)");
  Order(EndWorkers{absl::ZeroDuration()});
  Exit(2, kKilled);
  EXPECT_EQ(Told<WorkerEnded>().at(0).exited.description, "killed by SIGKILL (9)");
}

// ---- work that is done and saved ----------------------------------------------------------------

TEST_F(AgentTest, AWorkerThatHasLeftButDoesNotEndIsKilledOnce) {
  Start(2, 1, 4);
  EXPECT_THAT(Order(NoteLeft{1}), IsEmpty());
  EXPECT_EQ(agent_.next_deadline(), kStopTimeout);
  PassTo(kStopTimeout - absl::Milliseconds(1));
  EXPECT_THAT(actions_, IsEmpty());
  PassTo(kStopTimeout);
  EXPECT_THAT(Signals(), ElementsAre(std::pair(1, SIGKILL)));
  EXPECT_THAT(Message(), HasSubstr("rank 5 has done and saved its work, but does not end within 30s"));
  PassTo(2 * kStopTimeout);
  EXPECT_THAT(actions_, IsEmpty());
  Exit(1, kKilled);
  EXPECT_THAT(Message(), HasSubstr("rank 5: killed by SIGKILL (9) after its work was done and saved"));
  EXPECT_EQ(Told<WorkerEnded>().at(0).exited.description, "killed by SIGKILL (9)") << "it is ours";
  EXPECT_FALSE(agent_.is_idle()) << "the other goes on";
}

TEST_F(AgentTest, AWorkerThatLeavesTwiceGetsNoMoreTime) {
  Start(1);
  Order(NoteLeft{0});
  now_ = absl::Seconds(20);
  Order(NoteLeft{0});
  EXPECT_EQ(agent_.next_deadline(), kStopTimeout);
  PassTo(kStopTimeout);
  EXPECT_THAT(Signals(), SizeIs(1));
  Order(NoteLeft{0});
  PassTo(absl::Hours(1));
  EXPECT_THAT(Signals(), IsEmpty()) << "it was killed";
}

TEST_F(AgentTest, AWorkerThatLeavesAndEndsIsNoWordWorth) {
  Start(1);
  Order(NoteLeft{0});
  Exit(0, kDone);
  EXPECT_THAT(Told<NodeMessage>(), IsEmpty());
  EXPECT_THAT(Told<WorkerEnded>(), SizeIs(1));
  EXPECT_EQ(agent_.next_deadline(), absl::InfiniteDuration());
  PassTo(absl::Hours(1));
  EXPECT_THAT(actions_, IsEmpty());
}

TEST_F(AgentTest, ToEndTakesAMomentEvenWithoutAStopTimeout) {
  Agent agent({.stop_timeout = absl::ZeroDuration()});
  agent.Decide(now_, NodeCommand{1, StartWorkers{0, {{"a/0", "a", 0, 1, {}}}}});
  agent.Decide(now_, NodeCommand{1, NoteLeft{0}});
  EXPECT_EQ(agent.next_deadline(), absl::Seconds(1));
}

TEST_F(AgentTest, AKeeperThatStandsStillWhenAllIsSavedCostsNothing) {
  Start(2, 1, 4);
  Order(NoteLeft{0});
  Order(NoteLeft{1});
  Exit(0, kDone);
  PassTo(kStopTimeout);
  ASSERT_THAT(Signals(), SizeIs(1));
  PassTo(kStopTimeout + kKeeperPatience);
  EXPECT_THAT(All<KillKeeper>(), SizeIs(1));
  Give(KeeperLost{});
  EXPECT_THAT(All<KillOrphans>(), SizeIs(1));
  ASSERT_THAT(Told<WorkerEnded>(), SizeIs(1)) << "so that the coordinator knows that all is done";
  EXPECT_EQ(Told<WorkerEnded>()[0].worker, 1);
  EXPECT_FALSE(agent_.is_idle()) << "the end is the coordinator's to say";
  Order(EndWorkers{kStopTimeout});
  ASSERT_THAT(All<FinishAttempt>(), SizeIs(1));
  EXPECT_FALSE(All<FinishAttempt>()[0].keeper_lost);
}

TEST_F(AgentTest, AKeeperIsLeftAloneWhileSomebodyStillWorks) {
  Start(2);
  Order(NoteLeft{0});
  PassTo(absl::Hours(1));
  EXPECT_THAT(All<KillKeeper>(), IsEmpty()) << "the other would end with it";
  Order(NoteLeft{1});
  Exit(0, kKilled);
  PassTo(absl::Hours(1) + kStopTimeout / 2);
  EXPECT_THAT(All<KillKeeper>(), IsEmpty());
}

// ---- processes that do not end ------------------------------------------------------------------

TEST_F(AgentTest, AProcessThatHangsInTheKernelIsLeftBehind) {
  Start(2, 1, 4);
  Order(EndWorkers{absl::ZeroDuration(), 1});
  Give(ProcessStuck{123, 1});
  EXPECT_THAT(Message(), HasSubstr("process 123 (rank 5) was killed and does not end"));
  ASSERT_THAT(All<FinishAttempt>(), SizeIs(1));
  EXPECT_EQ(All<FinishAttempt>()[0].tail_of, 1);
  EXPECT_FALSE(All<FinishAttempt>()[0].keeper_lost);
  EXPECT_TRUE(agent_.is_idle());
  Give(ProcessStuck{124, -1});
  EXPECT_THAT(Message(), HasSubstr("process 124 was killed and does not end"));
  EXPECT_THAT(All<FinishAttempt>(), IsEmpty()) << "an attempt ends once";
  EXPECT_THAT(Give(ProcessesGone{}), IsEmpty());
}

TEST_F(AgentTest, WhatIsStuckOfAnAttemptThatHasEndedEndsNoLaterOne) {
  Start(1);
  Order(EndWorkers{absl::ZeroDuration()});
  Give(ProcessStuck{123, 0});
  Start(1, 2);
  Give(ProcessStuck{124, -1});
  EXPECT_THAT(All<FinishAttempt>(), IsEmpty());
  EXPECT_THAT(Give(ProcessesGone{}), IsEmpty());
  EXPECT_FALSE(agent_.is_idle());
}

TEST_F(AgentTest, ALostKeeperEndsTheAttemptAndWhatItLeftIsKilled) {
  Start(2);
  Give(KeeperLost{});
  ASSERT_THAT(actions_, SizeIs(2));
  EXPECT_TRUE(std::holds_alternative<KillOrphans>(actions_[0])) << "before the end is reported";
  ASSERT_TRUE(std::holds_alternative<FinishAttempt>(actions_[1]));
  EXPECT_TRUE(std::get<FinishAttempt>(actions_[1]).keeper_lost);
  EXPECT_TRUE(agent_.is_idle());
  EXPECT_THAT(Give(KeeperLost{}), IsEmpty());
  Start(1, 2);
  Order(EndWorkers{absl::ZeroDuration()}, 2);
  Give(ProcessesGone{});
  ASSERT_THAT(All<FinishAttempt>(), SizeIs(1));
  EXPECT_FALSE(All<FinishAttempt>()[0].keeper_lost) << "that was the attempt before";
}

TEST_F(AgentTest, AKeeperThatFallsSilentIsKilledAndEndsTheAttempt) {
  Start(1);
  Order(EndWorkers{absl::Seconds(2)});
  PassTo(absl::Seconds(2));
  ASSERT_TRUE(KillsAll());
  const absl::Duration deadline = absl::Seconds(2) + kKeeperPatience;
  EXPECT_EQ(agent_.next_deadline(), deadline);
  PassTo(deadline - absl::Milliseconds(1));
  EXPECT_THAT(actions_, IsEmpty());
  PassTo(deadline);
  ASSERT_THAT(actions_, SizeIs(1));
  EXPECT_THAT(All<KillKeeper>(), SizeIs(1));
  PassTo(deadline + absl::Seconds(1));
  EXPECT_THAT(actions_, IsEmpty()) << "once";
  Give(KeeperLost{});
  EXPECT_THAT(All<FinishAttempt>(), SizeIs(1));
  EXPECT_TRUE(agent_.is_idle());
}

// ---- hangs --------------------------------------------------------------------------------------

TEST_F(AgentTest, AllWorkersShowTheirStacksTheHungOneFirstAndNobodyIsEndedForIt) {
  Start(4);
  Exit(0, kDone);
  Order(ShowStacks{2});
  ASSERT_THAT(actions_, SizeIs(1));
  EXPECT_THAT(All<TakeStacks>().at(0).workers, ElementsAre(2, 1, 3));
  EXPECT_EQ(All<TakeStacks>().at(0).hung, 2);
  EXPECT_THAT(Order(ShowStacks{2}), IsEmpty()) << "they are being taken";
  Give(StacksTaken{});
  ASSERT_THAT(actions_, SizeIs(1)) << "other nodes may need longer";
  EXPECT_THAT(Told<StacksShown>(), SizeIs(1));
  EXPECT_THAT(Give(StacksTaken{}), IsEmpty()) << "once";
  Order(EndWorkers{absl::Seconds(5)});
  EXPECT_THAT(Signals(), testing::Not(testing::Contains(std::pair(2, SIGTERM)))) << "it could not obey";
  EXPECT_THAT(Signals(), testing::IsSupersetOf({std::pair(2, SIGKILL), std::pair(3, SIGTERM)}));
}

TEST_F(AgentTest, WorkersShowTheirStacksWhereOneOfAnotherNodeHangs) {
  Start(2);
  Order(ShowStacks{-1});
  EXPECT_THAT(All<TakeStacks>().at(0).workers, ElementsAre(0, 1));
  EXPECT_EQ(All<TakeStacks>().at(0).hung, -1);
  Give(StacksTaken{});
  Order(EndWorkers{absl::Seconds(5)});
  for (const auto& [worker, signal_number] : Signals()) EXPECT_NE(signal_number, SIGKILL);
}

TEST_F(AgentTest, StacksThatTakeTooLongAreDroppedAndAnsweredAllTheSame) {
  Start(2);
  now_ = absl::Seconds(100);
  Order(ShowStacks{0});
  EXPECT_EQ(agent_.next_deadline(), now_ + kStacksTimeout);
  EXPECT_THAT(PassTo(absl::Seconds(100) + kStacksTimeout - absl::Milliseconds(1)), IsEmpty());
  PassTo(absl::Seconds(100) + kStacksTimeout);
  EXPECT_THAT(All<DropStacks>(), SizeIs(1));
  EXPECT_THAT(Told<StacksShown>(), SizeIs(1));
  EXPECT_EQ(agent_.next_deadline(), absl::InfiniteDuration());
  EXPECT_THAT(Give(StacksTaken{}), IsEmpty()) << "once";
}

TEST_F(AgentTest, AnEndThatComesWhileStacksAreTakenDoesNotWaitForThem) {
  Start(2);
  Order(ShowStacks{0});
  Order(EndWorkers{absl::Seconds(5)});
  EXPECT_THAT(Signals(), testing::Contains(std::pair(0, SIGKILL)));
  Give(StacksTaken{});
  EXPECT_THAT(Signals(), IsEmpty());
  EXPECT_THAT(Told<StacksShown>(), SizeIs(1));
}

TEST_F(AgentTest, StacksThatCannotBeTakenAreAnsweredAllTheSame) {
  Start(2);
  Exit(0, kDone);
  Exit(1, kDone);
  Order(ShowStacks{1});
  EXPECT_THAT(All<TakeStacks>(), IsEmpty());
  EXPECT_THAT(Told<StacksShown>(), SizeIs(1));
}

TEST_F(AgentTest, WorkersThatAreBeingEndedShowNoStacks) {
  Start(2);
  Order(EndWorkers{absl::Seconds(5)});
  Order(ShowStacks{0});
  EXPECT_THAT(All<TakeStacks>(), IsEmpty());
  EXPECT_THAT(Told<StacksShown>(), SizeIs(1));
}

TEST_F(AgentTest, StacksOfAnAttemptThatHasEndedAreOfNoAccount) {
  Start(1);
  Order(ShowStacks{0});
  Give(KeeperLost{});
  EXPECT_THAT(Give(StacksTaken{}), IsEmpty());
  Start(1, 2);
  EXPECT_THAT(Give(StacksTaken{}), IsEmpty());
  EXPECT_EQ(agent_.next_deadline(), absl::InfiniteDuration());
  Order(EndWorkers{absl::Seconds(5)}, 2);
  EXPECT_THAT(Signals(), ElementsAre(std::pair(0, SIGTERM), std::pair(0, SIGCONT)))
      << "this one does not hang";
}

TEST_F(AgentTest, WhatAWorkerDoesIsLookedForAndTold) {
  Start(2);
  Order(FindActivity{1});
  EXPECT_EQ(All<LookForActivity>().at(0).worker, 1);
  Give(ActivityFound{1, Activity::kStopped});
  const auto seen = Told<ActivitySeen>();
  ASSERT_THAT(seen, SizeIs(1));
  EXPECT_EQ(seen[0].worker, 1);
  EXPECT_EQ(seen[0].activity, Activity::kStopped);
  Exit(1, kDone);
  EXPECT_THAT(Order(FindActivity{1}), IsEmpty()) << "nothing any more";
  Order(EndWorkers{absl::Seconds(5)});
  EXPECT_THAT(Give(ActivityFound{0, Activity::kIdle}), IsEmpty()) << "that does not matter any more";
}

// ---- always an end ------------------------------------------------------------------------------

// Whatever the order: the attempt ends exactly once, and not before everything is gone or given up.
TEST_F(AgentTest, EveryAttemptEndsExactlyOnce) {
  using Step = std::function<void()>;
  const std::vector<Step> steps = {
      [&] { Exit(0, kDone); },
      [&] { Exit(1, kKilled); },
      [&] { Order(NoteLeft{0}, agent_.attempt()); },
      [&] { Order(ShowStacks{1}, agent_.attempt()); },
      [&] { Order(EndWorkers{absl::Seconds(3)}, agent_.attempt()); },
      [&] { Give(ProcessNotStarted{EnvironmentError("no")}); },
      [&] { Give(StacksTaken{}); },
      [&] {
        Give(ProcessStuck{9, 1});
      },
      [&] { Give(ProcessesGone{}); },
      [&] { Give(KeeperLost{}); },
      [&] { PassTo(now_ + absl::Seconds(10)); },
  };
  uint64_t state = 1;
  for (int64_t attempt = 1; attempt <= 2000; ++attempt) {
    Start(2, attempt);
    int num_ends = 0;
    for (int i = 0; i < 12; ++i) {
      state = state * 6364136223846793005 + 1442695040888963407;
      steps[(state >> 33) % steps.size()]();
      num_ends += static_cast<int>(All<FinishAttempt>().size());
      ASSERT_EQ(agent_.is_idle(), num_ends == 1);
    }
    for (int i = 0; i < 3 && num_ends == 0; ++i) {  // nothing is heard but the clock
      Order(EndWorkers{absl::Seconds(3)}, attempt);
      num_ends += static_cast<int>(All<FinishAttempt>().size());
      PassTo(now_ + absl::Minutes(1));
      if (!All<KillKeeper>().empty()) Give(KeeperLost{});
      num_ends += static_cast<int>(All<FinishAttempt>().size());
    }
    if (num_ends == 0) {  // its keeper was killed before
      Give(KeeperLost{});
      num_ends += static_cast<int>(All<FinishAttempt>().size());
    }
    ASSERT_EQ(num_ends, 1) << "attempt " << attempt;
    ASSERT_EQ(agent_.next_deadline(), absl::InfiniteDuration());
  }
}

}  // namespace
}  // namespace trainctl::rendezvous
