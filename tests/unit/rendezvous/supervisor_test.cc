// What a supervisor decides, by hand: time passes only when a test says so. The test is the nodes, the
// coordinator and the disk.
#include "rendezvous/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
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
using testing::Not;
using testing::SizeIs;

constexpr absl::Duration kStopTimeout = absl::Seconds(30);
constexpr absl::Duration kNodeTimeout = absl::Minutes(2);
constexpr int64_t kGeneration = 8;

class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() { Make({"a", "b", "c"}); }

  void Make(std::vector<std::string> nodes, int64_t max_restarts = 3) {
    SupervisorOptions options;
    options.nodes = std::move(nodes);
    options.max_restarts = max_restarts;
    options.stop_timeout = kStopTimeout;
    options.node_timeout = kNodeTimeout;
    options.watchdog.at_first = absl::Seconds(60);
    options.watchdog.most = absl::Minutes(10);
    options.checkpoint_step = 10;
    supervisor_.emplace(options);
    attempt_ = 1;
  }
  const std::vector<SupervisorAction>& Give(const SupervisorEvent& event) {
    return actions_ = supervisor_->Decide(now_, event);
  }
  const std::vector<SupervisorAction>& Pass(absl::Duration time) {
    now_ += time;
    return Give(SupervisorTick{});
  }

  // ---- the world
  // Two workers on each: ranks 0 and 1 on the first node.
  static std::vector<Slot> SlotsOf(const std::string& node, int num_workers = 2) {
    std::vector<Slot> slots;
    for (int i = 0; i < num_workers; ++i) slots.push_back({absl::StrCat(node, "/", i), node, i, 1, {}});
    return slots;
  }
  void Ready(const std::string& node) { Give(NodeReady{node, SlotsOf(node)}); }
  void Report(const std::string& node, decltype(NodeEvent::what) what) {
    Give(NodeReport{node, {attempt_, std::move(what)}});
  }
  Notice Of(Notice::Kind kind) const {
    Notice notice;
    notice.kind = kind;
    notice.attempt = attempt_;
    notice.generation = kGeneration;
    return notice;
  }
  void Fail(const std::string& member, int rank, const std::string& message = "killed by SIGSEGV (11)",
            int64_t step = 5) {
    Notice notice = Of(Notice::Kind::kFailed);
    notice.member = member;
    notice.failure = {rank, step, "", message, false};
    Give(notice);
  }
  void Stop(StopMode mode) {
    Notice notice = Of(Notice::Kind::kStopRequested);
    notice.stop = mode;
    notice.reason = "SIGTERM";
    Give(notice);
  }
  void Leave(const std::string& member, int rank) {
    Notice notice = Of(Notice::Kind::kLeft);
    notice.member = member;
    notice.rank = rank;
    Give(notice);
  }
  void Finish(bool stopped) {
    Notice notice = Of(Notice::Kind::kFinished);
    notice.stopped = stopped;
    Give(notice);
  }
  static WorkerEnded EndOf(const std::string& node, int worker, std::optional<int> exit_code = std::nullopt) {
    WorkerEnded ended;
    ended.worker = worker;
    ended.exited.member = absl::StrCat(node, "/", worker);
    ended.exit_code = exit_code;
    return ended;
  }
  void Start() {
    Give(Begin{});
    for (const char* node : {"a", "b", "c"}) Ready(node);
  }
  void Run() {
    Start();
    Record();
  }
  void Record() {
    Give(Of(Notice::Kind::kPrepared));
    Give(GenerationRecorded{kGeneration});
  }
  void EndNodes(const std::vector<std::string>& nodes = {"a", "b", "c"}) {
    for (const std::string& node : nodes) Report(node, NodeEnded{});
  }
  // To the next attempt, all of whose nodes are ready already.
  void Settle() {
    Give(Settled{});
    ASSERT_THAT(All<CheckRestart>(), SizeIs(1));
    Give(RestartChecked{});
    ++attempt_;
  }

  // ---- what was decided
  template <typename T>
  std::vector<T> All() const {
    std::vector<T> found;
    for (const SupervisorAction& action : actions_) {
      if (const T* one = std::get_if<T>(&action)) found.push_back(*one);
    }
    return found;
  }
  // What nodes were told: node, command.
  template <typename T>
  std::vector<std::pair<std::string, T>> Told() const {
    std::vector<std::pair<std::string, T>> found;
    for (const ToNode& told : All<ToNode>()) {
      EXPECT_EQ(told.command.attempt, attempt_);
      if (const T* one = std::get_if<T>(&told.command.what)) found.emplace_back(told.node, *one);
    }
    return found;
  }
  template <typename T>
  std::vector<std::string> NodesTold() const {
    std::vector<std::string> nodes;
    for (const auto& [node, command] : Told<T>()) nodes.push_back(node);
    return nodes;
  }
  std::optional<absl::Duration> Grace() const {  // of all that were told to end
    const auto told = Told<EndWorkers>();
    for (const auto& [node, end] : told) EXPECT_EQ(end.grace, told[0].second.grace);
    return told.empty() ? std::nullopt : std::optional(told[0].second.grace);
  }
  template <typename T>
  std::vector<T> Submitted() const {
    std::vector<T> found;
    for (const ToCoordinator& submitted : All<ToCoordinator>()) {
      if (const T* one = std::get_if<T>(&submitted.event)) found.push_back(*one);
    }
    return found;
  }
  std::string Said() const {
    std::string said;
    for (const Say& say : All<Say>()) absl::StrAppend(&said, say.text, "\n");
    return said;
  }
  bool Settles() const { return !All<rendezvous::Settle>().empty(); }
  std::vector<std::string> AgentsStarted() const {
    std::vector<std::string> nodes;
    for (const StartAgent& start : All<StartAgent>()) nodes.push_back(start.node);
    return nodes;
  }
  JobOutcome Outcome() const {
    const auto concluded = All<Conclude>();
    if (concluded.size() != 1 || !concluded[0].outcome.ok()) {
      ADD_FAILURE() << "no outcome";
      return {};
    }
    return *concluded[0].outcome;
  }
  std::string Error() const {
    const auto concluded = All<Conclude>();
    return concluded.size() == 1 ? std::string(concluded[0].outcome.status().message()) : "none";
  }

  std::optional<Supervisor> supervisor_;
  absl::Duration now_ = absl::Seconds(1000);
  int64_t attempt_ = 1;
  std::vector<SupervisorAction> actions_;
};

// ---- gathering ----------------------------------------------------------------------------------

TEST_F(SupervisorTest, NobodyStartsBeforeEveryNodeIsReady) {
  Give(Begin{});
  EXPECT_THAT(AgentsStarted(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(actions_, SizeIs(3));
  Ready("c");
  EXPECT_THAT(actions_, IsEmpty());
  Ready("c");
  EXPECT_THAT(actions_, IsEmpty());
  Ready("a");
  EXPECT_THAT(actions_, IsEmpty());
  Give(NodeReady{"d", SlotsOf("d")});
  EXPECT_THAT(actions_, IsEmpty()) << "unknown";
  Ready("b");
  ASSERT_THAT(actions_, SizeIs(4));
  ASSERT_TRUE(std::holds_alternative<ToCoordinator>(actions_[0])) << "before a worker can join";
  const auto expected = Submitted<Expect>();
  ASSERT_THAT(expected, SizeIs(1));
  EXPECT_EQ(expected[0].attempt, 1);
  std::vector<std::string> members;
  for (const Slot& slot : expected[0].slots) members.push_back(slot.member);
  EXPECT_THAT(members, ElementsAre("a/0", "a/1", "b/0", "b/1", "c/0", "c/1"));
  EXPECT_THAT(NodesTold<StartWorkers>(), ElementsAre("a", "b", "c"));
}

TEST_F(SupervisorTest, RanksGoOnFromNodeToNodeHoweverManyEachHas) {
  Give(Begin{});
  Give(NodeReady{"b", SlotsOf("b", 3)});
  Give(NodeReady{"c", SlotsOf("c", 1)});
  Give(NodeReady{"a", SlotsOf("a", 2)});
  const auto told = Told<StartWorkers>();
  ASSERT_THAT(told, SizeIs(3));
  EXPECT_EQ(told[0].second.first_rank, 0);
  EXPECT_EQ(told[1].second.first_rank, 2);
  EXPECT_EQ(told[1].second.slots.size(), 3u);
  EXPECT_EQ(told[2].second.first_rank, 5);
  Give(Of(Notice::Kind::kPrepared));
  ASSERT_THAT(All<RecordGeneration>(), SizeIs(1));
  EXPECT_EQ(All<RecordGeneration>()[0].world_size, 6);
  Give(GenerationRecorded{kGeneration});
  Fail("b/2", 4);
  EXPECT_EQ(Told<EndWorkers>().at(1).second.tail_of, 2);
  Report("b", EndOf("b", 2, 4));
  EndNodes();
  Give(Settled{});
  Give(RestartChecked{});
  ASSERT_THAT(All<RecordFailure>(), SizeIs(1));
  EXPECT_EQ(All<RecordFailure>()[0].facts.rank, 4);
  EXPECT_EQ(All<RecordFailure>()[0].facts.exit_code, 4) << "of the worker of another node";
}

TEST_F(SupervisorTest, ANodeThatIsLostBeforeTheFirstStartIsTheEndWithItsReason) {
  Give(Begin{});
  Ready("a");
  Give(NodeLost{"b", "ssh: no route to host"});
  EXPECT_THAT(All<ToNode>(), IsEmpty()) << "nothing was started";
  ASSERT_TRUE(Settles());
  Ready("b");
  EXPECT_THAT(actions_, IsEmpty()) << "too late";
  Ready("c");
  Give(Settled{});
  EXPECT_EQ(Error(), "b: ssh: no route to host");
  EXPECT_EQ(ExitCodeFor(All<Conclude>()[0].outcome.status()), ExitCode::kEnvironment);
  EXPECT_THAT(Give(Settled{}), IsEmpty()) << "once";
  EXPECT_THAT(Pass(absl::Hours(1)), IsEmpty());
}

TEST_F(SupervisorTest, NodesThatAreNotReadyInTimeAreNamed) {
  Give(Begin{});
  Ready("b");
  EXPECT_THAT(Pass(kNodeTimeout - absl::Seconds(1)), IsEmpty());
  Pass(absl::Seconds(1));
  ASSERT_TRUE(Settles());
  Give(Settled{});
  EXPECT_EQ(
      Error(),
      "not all nodes were ready within 2m: a: its agent has not said that it is ready; c: its agent has "
      "not said that it is ready");
}

TEST_F(SupervisorTest, ALostNodeIsTriedAgainUntilItComesBack) {
  Run();
  Give(NodeLost{"b", "silent"});
  Fail("b/0", 2, "lost with its node");
  EXPECT_THAT(NodesTold<EndWorkers>(), ElementsAre("a", "c")) << "b cannot be told";
  EndNodes({"a"});
  EXPECT_FALSE(Settles());
  EndNodes({"c"});
  ASSERT_TRUE(Settles());
  Settle();
  EXPECT_THAT(AgentsStarted(), ElementsAre("b")) << "the others' agents are there";
  EXPECT_THAT(All<ToNode>(), IsEmpty());
  for (int i = 0; i < 3; ++i) {
    Give(NodeLost{"b", "no route to host"});
    EXPECT_THAT(actions_, IsEmpty()) << "a node that starts again takes minutes";
    EXPECT_THAT(Pass(absl::Seconds(1)), IsEmpty());
    Pass(absl::Seconds(1));
    EXPECT_THAT(AgentsStarted(), ElementsAre("b"));
    EXPECT_THAT(Pass(absl::Seconds(10)), IsEmpty()) << "once for each loss";
  }
  Ready("b");
  EXPECT_THAT(NodesTold<StartWorkers>(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(Submitted<Expect>().at(0).attempt, 2);
}

TEST_F(SupervisorTest, ALostNodeThatDoesNotComeBackIsTheEnd) {
  Run();
  Give(NodeLost{"b", "silent"});
  Fail("b/0", 2, "lost with its node");
  EndNodes({"a", "c"});
  Settle();
  Give(NodeLost{"b", "no route to host"});
  Pass(kNodeTimeout);
  ASSERT_TRUE(Settles());
  Give(Settled{});
  EXPECT_EQ(Error(), "not all nodes were ready within 2m: b: no route to host");
}

TEST_F(SupervisorTest, ANodeThatIsLostWhileAnotherIsWaitedForHasToComeBackToo) {
  Run();
  Give(NodeLost{"b", "silent"});
  Fail("b/0", 2, "lost with its node");
  EndNodes({"a", "c"});
  Settle();
  Give(NodeLost{"a", "silent"});
  Ready("b");
  EXPECT_THAT(actions_, IsEmpty());
  Pass(absl::Seconds(2));
  EXPECT_THAT(AgentsStarted(), ElementsAre("a"));
  Ready("a");
  EXPECT_THAT(NodesTold<StartWorkers>(), ElementsAre("a", "b", "c"));
}

// ---- the start of an attempt --------------------------------------------------------------------

TEST_F(SupervisorTest, WorkersGoOnlyOnceTheirGenerationIsRecorded) {
  Start();
  Give(Of(Notice::Kind::kPrepared));
  ASSERT_THAT(actions_, SizeIs(1));
  ASSERT_THAT(All<RecordGeneration>(), SizeIs(1));
  EXPECT_EQ(All<RecordGeneration>()[0].generation, kGeneration);
  EXPECT_THAT(Give(GenerationRecorded{kGeneration - 1}), IsEmpty()) << "another is";
  Give(GenerationRecorded{kGeneration});
  ASSERT_THAT(Submitted<Recorded>(), SizeIs(1));
  EXPECT_EQ(Submitted<Recorded>()[0].generation, kGeneration);
}

TEST_F(SupervisorTest, WhatIsRecordedAfterTheEndOfAnAttemptLetsNobodyGo) {
  Start();
  Give(Of(Notice::Kind::kPrepared));
  Fail("a/0", 0);
  EXPECT_THAT(Give(GenerationRecorded{kGeneration}), IsEmpty());
  EXPECT_THAT(Give(Of(Notice::Kind::kPrepared)), IsEmpty());
}

TEST_F(SupervisorTest, WorkersThatCannotBeStartedAreTheEndWithoutARestart) {
  Start();
  Report("b", WorkersNotStarted{EnvironmentError("no such program")});
  EXPECT_THAT(NodesTold<EndWorkers>(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(Grace(), absl::ZeroDuration());
  EndNodes();
  ASSERT_TRUE(Settles());
  Give(Settled{});
  EXPECT_THAT(Error(), HasSubstr("no such program"));
}

// ---- the end of an attempt ----------------------------------------------------------------------

TEST_F(SupervisorTest, AFinishedJobIsOverOnceEveryNodeHasEnded) {
  Run();
  Finish(/*stopped=*/false);
  EXPECT_EQ(Grace(), absl::ZeroDuration()) << "all have ended already";
  EndNodes({"a", "b"});
  EXPECT_FALSE(Settles());
  EndNodes({"c"});
  ASSERT_TRUE(Settles());
  Give(Settled{});
  EXPECT_EQ(Outcome().kind, JobOutcome::Kind::kFinished);
  EXPECT_EQ(Outcome().exit_code(), ExitCode::kOk);
  EXPECT_EQ(Outcome().generation, kGeneration);
  EXPECT_EQ(Outcome().num_restarts, 0);
}

TEST_F(SupervisorTest, AFailedJobStartsAgainOnlyAfterEveryNodeHasEnded) {
  Run();
  Fail("b/1", 3);
  EXPECT_EQ(Grace(), kStopTimeout);
  const auto ends = Told<EndWorkers>();
  ASSERT_THAT(ends, SizeIs(3));
  EXPECT_EQ(ends[0].second.tail_of, -1);
  EXPECT_EQ(ends[1].second.tail_of, 1) << "the worker on its node, not its rank";
  EXPECT_EQ(ends[2].second.tail_of, -1);
  EndNodes({"c", "a"});
  EXPECT_THAT(actions_, IsEmpty());
  Give(Settled{});
  EXPECT_THAT(actions_, IsEmpty()) << "b has not ended";
  Give(RestartChecked{});
  EXPECT_THAT(actions_, IsEmpty());
  Report("b", NodeEnded{"line 1\nline 2\n"});
  ASSERT_TRUE(Settles());
  EXPECT_THAT(All<ToNode>(), IsEmpty());
  Give(Settled{});
  EXPECT_THAT(actions_, SizeIs(1));
  ASSERT_THAT(All<CheckRestart>(), SizeIs(1));
  Give(RestartChecked{});
  EXPECT_EQ(Said(),
            "rank 3 failed in step 5: killed by SIGSEGV (11)\n  | line 1\n  | line 2\nrestarting all workers "
            "(1 of 3) from the checkpoint of step 10\n");
  ASSERT_THAT(All<RecordFailure>(), SizeIs(1));
  EXPECT_EQ(All<RecordFailure>()[0].generation, kGeneration);
  EXPECT_THAT(All<RecordRestart>(), SizeIs(1));
  ++attempt_;
  EXPECT_THAT(NodesTold<StartWorkers>(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(AgentsStarted(), IsEmpty());
}

TEST_F(SupervisorTest, TheTailOfTheLogOfTheLastAttemptIsInTheOutcome) {
  Make({"a", "b", "c"}, /*max_restarts=*/0);
  Run();
  Fail("b/1", 3);
  Report("b", EndOf("b", 1, 3));
  ASSERT_THAT(Submitted<Exited>(), SizeIs(1)) << "the coordinator may still see a better explanation";
  EXPECT_EQ(Submitted<Exited>()[0].member, "b/1");
  Report("b", EndOf("b", 1, 5));
  EXPECT_THAT(actions_, IsEmpty()) << "it ends once";
  Report("b", NodeEnded{"its last words"});
  EndNodes({"a", "c"});
  Give(Settled{});
  const JobOutcome outcome = Outcome();
  EXPECT_EQ(outcome.kind, JobOutcome::Kind::kFailed);
  EXPECT_EQ(outcome.exit_code(), ExitCode::kWorkerFailed);
  EXPECT_EQ(outcome.rank, 3);
  EXPECT_EQ(outcome.step, 5);
  EXPECT_EQ(outcome.log_tail, "its last words");
  EXPECT_EQ(outcome.worker_exit_code, 3);
  EXPECT_EQ(outcome.generation, kGeneration);
  EXPECT_EQ(outcome.message,
            "rank 3 failed in step 5: killed by SIGSEGV (11); not restarted: exit code 3 means that the same "
            "start would fail again");
}

TEST_F(SupervisorTest, NothingOfAFailedAttemptIsLeftInTheNext) {
  Run();
  Fail("b/1", 3);
  Report("b", EndOf("b", 1, 1));
  Report("b", NodeEnded{"old words"});
  EndNodes({"a", "c"});
  Settle();
  Record();
  Fail("b/1", 3, "something else", 50);
  EndNodes();
  Give(Settled{});
  Give(RestartChecked{});
  ASSERT_THAT(All<RecordFailure>(), SizeIs(1));
  EXPECT_EQ(All<RecordFailure>()[0].facts.exit_code, std::nullopt);
  EXPECT_EQ(All<RecordFailure>()[0].facts.message, "something else");
  EXPECT_THAT(Said(), Not(HasSubstr("old words")));
}

TEST_F(SupervisorTest, TheSameFailureAgainIsNotRestarted) {
  Run();
  Fail("b/1", 3);
  EndNodes();
  Settle();
  Record();
  Fail("b/1", 3);
  EndNodes();
  Give(Settled{});
  EXPECT_THAT(All<CheckRestart>(), IsEmpty());
  EXPECT_THAT(Outcome().message, HasSubstr("the same rank failed in the same place"));
  EXPECT_EQ(Outcome().num_restarts, 1);
}

TEST_F(SupervisorTest, RestartsAreUsedUpWithoutANewCheckpoint) {
  Make({"a", "b", "c"}, /*max_restarts=*/2);
  Run();
  for (int i = 0; i < 5; ++i) {  // each brings the run on
    Fail("b/1", 3, "broken", 50 * i);
    EndNodes();
    Give(CheckpointSeen{20 + i});
    Settle();
    Record();
  }
  Fail("b/1", 3, "broken", 900);
  EndNodes();
  Settle();
  Record();
  Fail("b/1", 3, "broken", 1000);
  EndNodes();
  Give(Settled{});
  EXPECT_THAT(Outcome().message, HasSubstr("launch.max_restarts = 2 is used up"));
  EXPECT_EQ(Outcome().num_restarts, 6);
}

TEST_F(SupervisorTest, ARestartThatIsRefusedIsTheEndWithTheReason) {
  Run();
  Fail("b/1", 3);
  EndNodes();
  Give(Settled{});
  Give(RestartChecked{EnvironmentError("the data set has changed")});
  EXPECT_THAT(Outcome().message,
              HasSubstr("killed by SIGSEGV (11); not restarted: the data set has changed"));
  EXPECT_EQ(Outcome().kind, JobOutcome::Kind::kFailed);
  EXPECT_THAT(All<RecordFailure>(), SizeIs(1));
  EXPECT_THAT(All<RecordRestart>(), IsEmpty());
  EXPECT_THAT(Give(RestartChecked{}), IsEmpty()) << "it is over";
}

TEST_F(SupervisorTest, OnlyTheFirstResultOfAnAttemptCounts) {
  Run();
  Fail("b/1", 3);
  Fail("a/0", 0, "later");
  EXPECT_THAT(actions_, IsEmpty());
  Finish(false);
  EXPECT_THAT(actions_, IsEmpty());
  Give(FolderLost{EnvironmentError("gone")});
  EXPECT_THAT(actions_, IsEmpty());
  Report("a", WorkersNotStarted{EnvironmentError("no")});
  EXPECT_THAT(actions_, IsEmpty());
  EndNodes();
  Settle();
  EXPECT_THAT(Said(), HasSubstr("rank 3 failed"));
}

TEST_F(SupervisorTest, WorkersThatNobodyMissedAreAFailureOfTheirNode) {
  Run();
  Report("b", NodeEnded{});
  EXPECT_THAT(NodesTold<EndWorkers>(), ElementsAre("a", "c"));
  EXPECT_EQ(Grace(), kStopTimeout);
  EndNodes({"a", "c"});
  Give(Settled{});
  Give(RestartChecked{});
  EXPECT_THAT(Said(), HasSubstr("the workers of b were ended"));
}

TEST_F(SupervisorTest, ALostKeeperIsNamedWithItsNode) {
  Run();
  Report("b", NodeEnded{"", /*keeper_lost=*/true});
  EndNodes({"a", "c"});
  Settle();
  EXPECT_THAT(Said(), HasSubstr("trainctl-keeper, was killed on b"));

  Make({"a"});
  Give(Begin{});
  Ready("a");
  Report("a", NodeEnded{"", /*keeper_lost=*/true});
  ASSERT_TRUE(Settles());
  Settle();
  EXPECT_THAT(Said(), HasSubstr("trainctl-keeper, was killed\n")) << "there is one machine";
}

TEST_F(SupervisorTest, AKeeperThatIsLostAfterTheResultChangesNothing) {
  Run();
  Finish(false);
  Report("b", NodeEnded{"", /*keeper_lost=*/true});
  EndNodes({"a", "c"});
  Give(Settled{});
  EXPECT_EQ(Outcome().kind, JobOutcome::Kind::kFinished);
}

TEST_F(SupervisorTest, AWorkerWithoutARankIsBlamedByItsPlace) {
  Start();
  Fail("c/0", -1, "did not join within 2m", -1);
  EXPECT_EQ(Told<EndWorkers>().at(2).second.tail_of, 0);
  EndNodes();
  Settle();
  EXPECT_THAT(Said(), HasSubstr("rank 4 failed during start-up: did not join within 2m"));
  ASSERT_THAT(All<RecordFailure>(), SizeIs(1));
  EXPECT_EQ(All<RecordFailure>()[0].generation, kGeneration) << "the last that the coordinator gave";
}

TEST_F(SupervisorTest, TheEndOfAnAttemptTakesACommandForEachNode) {
  constexpr int kNodes = 200;
  for (const bool all_lost : {false, true}) {
    std::vector<std::string> nodes;
    for (int i = 0; i < kNodes; ++i) nodes.push_back(absl::StrCat("n", i));
    Make(nodes);
    Give(Begin{});
    for (const std::string& node : nodes) Ready(node);
    EXPECT_THAT(NodesTold<StartWorkers>(), SizeIs(kNodes));
    Record();
    Fail("n7/0", 14);
    EXPECT_THAT(All<ToNode>(), SizeIs(kNodes));
    for (const std::string& node : nodes) {
      if (all_lost) {
        Give(NodeLost{node, "silent"});
      } else {
        Report(node, NodeEnded{});
      }
      EXPECT_THAT(All<ToNode>(), IsEmpty());
      EXPECT_EQ(Settles(), node == nodes.back());
    }
  }
}

// ---- lost nodes ---------------------------------------------------------------------------------

TEST_F(SupervisorTest, ANodeThatIsLostWhileItRunsIsTheEndOfItsWorkers) {
  Run();
  Report("b", EndOf("b", 0, 1));
  Give(NodeLost{"b", "nothing heard for 10s"});
  const auto exits = Submitted<Exited>();
  ASSERT_THAT(exits, SizeIs(1)) << "the other had ended before";
  EXPECT_EQ(exits[0].member, "b/1");
  EXPECT_TRUE(exits[0].crashed);
  EXPECT_TRUE(exits[0].killed) << "it explains what others say";
  EXPECT_FALSE(exits[0].clean);
  EXPECT_FALSE(exits[0].echo);
  EXPECT_EQ(exits[0].description, "lost with its node b: nothing heard for 10s");
  EXPECT_THAT(All<ToNode>(), IsEmpty()) << "the coordinator says what follows";
  Give(NodeLost{"b", "its agent has ended"});
  EXPECT_THAT(actions_, IsEmpty());
}

TEST_F(SupervisorTest, NothingOfALostNodeCounts) {
  Run();
  Give(NodeLost{"b", "silent"});
  Ready("b");
  EXPECT_THAT(actions_, IsEmpty()) << "the attempt goes on without it";
  Report("b", EndOf("b", 0, 1));
  EXPECT_THAT(actions_, IsEmpty());
  Report("b", NodeMessage{"I am back"});
  EXPECT_THAT(actions_, IsEmpty());
  Report("b", WorkersNotStarted{EnvironmentError("no")});
  EXPECT_THAT(actions_, IsEmpty());
  Report("b", NodeEnded{"", true});
  EXPECT_THAT(actions_, IsEmpty());
  Fail("b/0", 2, "lost with its node");
  EXPECT_THAT(NodesTold<EndWorkers>(), ElementsAre("a", "c"));
  EndNodes({"a", "c"});
  Settle();
  EXPECT_THAT(AgentsStarted(), IsEmpty()) << "it is back";
  EXPECT_THAT(NodesTold<StartWorkers>(), ElementsAre("a", "b", "c"));
}

TEST_F(SupervisorTest, ANodeMayComeBackWithOtherWorkers) {
  Run();
  Give(NodeLost{"b", "silent"});
  Fail("b/0", 2, "lost with its node");
  EndNodes({"a", "c"});
  Settle();
  Give(NodeReady{"b", SlotsOf("b", 1)});
  EXPECT_EQ(Told<StartWorkers>().at(2).second.first_rank, 3);
  Record();
  Leave("b/1", 3);
  EXPECT_THAT(actions_, IsEmpty()) << "there is none";
  Leave("c/1", 4);
  ASSERT_THAT(NodesTold<NoteLeft>(), ElementsAre("c"));
  EXPECT_EQ(Told<NoteLeft>()[0].second.worker, 1);
}

TEST_F(SupervisorTest, TheLastNodeThatIsLostWhileItEndsEndsTheAttempt) {
  Run();
  Fail("a/0", 0);
  EndNodes({"a", "b"});
  EXPECT_FALSE(Settles());
  Give(NodeLost{"c", "silent"});
  EXPECT_TRUE(Settles());
  EXPECT_THAT(All<ToNode>(), IsEmpty());
  Give(NodeLost{"c", "silent"});
  EXPECT_FALSE(Settles()) << "once";
  Settle();
  EXPECT_THAT(AgentsStarted(), ElementsAre("c"));
}

TEST_F(SupervisorTest, ANodeThatIsLostAfterItsEndHasToComeBackForTheNextAttempt) {
  Run();
  Fail("a/0", 0);
  EndNodes();
  Give(NodeLost{"c", "silent"});
  EXPECT_THAT(actions_, IsEmpty());
  Settle();
  EXPECT_THAT(AgentsStarted(), ElementsAre("c"));
  EXPECT_THAT(All<ToNode>(), IsEmpty());
}

TEST_F(SupervisorTest, ReportsOfAnotherAttemptChangeNothing) {
  Run();
  Fail("a/0", 0);
  EndNodes();
  Settle();
  Record();
  for (const int64_t attempt : {1, 3}) {
    Give(NodeReport{"b", {attempt, EndOf("b", 0, 1)}});
    EXPECT_THAT(actions_, IsEmpty());
    Give(NodeReport{"b", {attempt, NodeEnded{}}});
    EXPECT_THAT(actions_, IsEmpty());
    Give(NodeReport{"b", {attempt, WorkersNotStarted{EnvironmentError("no")}}});
    EXPECT_THAT(actions_, IsEmpty());
  }
  Give(NodeReport{"x", {2, NodeEnded{}}});
  EXPECT_THAT(actions_, IsEmpty());
}

TEST_F(SupervisorTest, WhatTheCoordinatorSaidOfAnEarlierAttemptEndsNoLaterOne) {
  Run();
  Report("b", NodeEnded{"", /*keeper_lost=*/true});  // the coordinator does not know
  EndNodes({"a", "c"});
  Settle();
  attempt_ = 1;
  Fail("a/0", 0, "killed by SIGKILL (9)");
  EXPECT_THAT(actions_, IsEmpty());
  Finish(false);
  EXPECT_THAT(actions_, IsEmpty());
  Leave("a/0", 0);
  EXPECT_THAT(actions_, IsEmpty()) << "it would be killed after stop_timeout";
  Give(Of(Notice::Kind::kPrepared));
  EXPECT_THAT(actions_, IsEmpty());
  attempt_ = 2;
  Record();
  EXPECT_THAT(Submitted<Recorded>(), SizeIs(1));
}

// ---- stop ---------------------------------------------------------------------------------------

TEST_F(SupervisorTest, AnInterruptAsksTheCoordinatorToStop) {
  Run();
  Give(Interrupted{"SIGTERM"});
  ASSERT_THAT(actions_, SizeIs(1));
  ASSERT_THAT(Submitted<StopRequest>(), SizeIs(1));
  EXPECT_EQ(Submitted<StopRequest>()[0].mode, StopMode::kAfterSave);
  EXPECT_EQ(Submitted<StopRequest>()[0].reason, "SIGTERM");
  for (int i = 0; i < 5; ++i) {
    Give(Interrupted{"SIGTERM"});
    EXPECT_EQ(Submitted<StopRequest>().at(0).mode, StopMode::kAfterSave) << "no person is in a hurry";
  }
}

TEST_F(SupervisorTest, ARunningJobIsLeftToSaveAndStop) {
  Run();
  Stop(StopMode::kAfterSave);
  EXPECT_THAT(All<ToNode>(), IsEmpty());
  ASSERT_THAT(All<RecordStop>(), SizeIs(1));
  EXPECT_EQ(All<RecordStop>()[0].message, "save and stop: SIGTERM");
  EXPECT_EQ(Said(), "saving and stopping (SIGTERM)\n");
  Leave("b/1", 3);
  ASSERT_THAT(Told<NoteLeft>(), SizeIs(1));
  EXPECT_EQ(Told<NoteLeft>()[0].first, "b");
  EXPECT_EQ(Told<NoteLeft>()[0].second.worker, 1);
  Finish(/*stopped=*/true);
  EndNodes();
  Give(Settled{});
  EXPECT_EQ(Outcome().kind, JobOutcome::Kind::kStoppedResumable);
  EXPECT_EQ(Outcome().exit_code(), ExitCode::kStoppedResumable);
  EXPECT_EQ(Outcome().message, "saved and stopped");
}

TEST_F(SupervisorTest, TheFirstInterruptByHandTellsWhatTheSecondDoes) {
  Run();
  Give(Interrupted{"SIGINT", /*by_hand=*/true});
  EXPECT_EQ(Submitted<StopRequest>().at(0).mode, StopMode::kAfterSave);
  Stop(StopMode::kAfterSave);
  EXPECT_THAT(Said(), HasSubstr("press Ctrl-C again to stop without saving"));
}

TEST_F(SupervisorTest, TheSecondInterruptStopsAtOnceAndTheThirdWithoutWaiting) {
  Run();
  Give(Interrupted{"SIGINT", true});
  Stop(StopMode::kAfterSave);
  Give(Interrupted{"SIGINT", true});
  EXPECT_EQ(Submitted<StopRequest>().at(0).mode, StopMode::kNow);
  EXPECT_THAT(All<ToNode>(), IsEmpty());
  Stop(StopMode::kNow);
  EXPECT_EQ(Grace(), absl::Seconds(3));
  EXPECT_THAT(NodesTold<EndWorkers>(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(All<RecordStop>().at(0).message, "stop now: SIGTERM");
  Give(Interrupted{"SIGINT", true});
  EXPECT_EQ(Grace(), absl::ZeroDuration());
  EndNodes();
  Give(Settled{});
  EXPECT_EQ(Outcome().kind, JobOutcome::Kind::kStoppedUnsaved);
  EXPECT_EQ(Outcome().exit_code(), ExitCode::kStoppedUnsaved);
}

TEST_F(SupervisorTest, ThreeInterruptsBeforeTheFirstIsNoticedDoNotWaitEither) {
  Run();
  for (int i = 0; i < 3; ++i) Give(Interrupted{"SIGINT", true});
  EXPECT_THAT(All<ToNode>(), IsEmpty());
  Stop(StopMode::kAfterSave);
  Stop(StopMode::kNow);
  EXPECT_EQ(Grace(), absl::ZeroDuration());
}

TEST_F(SupervisorTest, TheThirdInterruptEndsAFailedAttemptWithoutWaiting) {
  Run();
  Fail("a/0", 0);
  EXPECT_EQ(Grace(), kStopTimeout);
  Give(Interrupted{"SIGINT", true});
  Give(Interrupted{"SIGINT", true});
  EXPECT_THAT(All<ToNode>(), IsEmpty());
  Give(Interrupted{"SIGINT", true});
  EXPECT_EQ(Grace(), absl::ZeroDuration());
  EXPECT_EQ(Told<EndWorkers>().at(0).second.tail_of, 0);
}

TEST_F(SupervisorTest, AStopBeforeTheStartStartsNothing) {
  for (const StopMode mode : {StopMode::kAfterSave, StopMode::kNow}) {
    Make({"a", "b", "c"});
    Stop(mode);
    EXPECT_THAT(All<RecordStop>(), SizeIs(1));
    EXPECT_FALSE(Settles());
    Give(Begin{});
    EXPECT_THAT(AgentsStarted(), IsEmpty());
    ASSERT_TRUE(Settles());
    Give(Settled{});
    EXPECT_EQ(Outcome().kind, mode == StopMode::kNow ? JobOutcome::Kind::kStoppedUnsaved
                                                     : JobOutcome::Kind::kStoppedResumable);
  }
}

TEST_F(SupervisorTest, AStopWhileNodesAreWaitedForIsTheEnd) {
  Give(Begin{});
  Ready("a");
  Stop(StopMode::kAfterSave);
  ASSERT_TRUE(Settles());
  EXPECT_THAT(All<ToNode>(), IsEmpty());
  Ready("b");
  Ready("c");
  EXPECT_THAT(actions_, IsEmpty());
  EXPECT_THAT(Pass(kNodeTimeout), IsEmpty());
  Give(Settled{});
  EXPECT_EQ(Outcome().kind, JobOutcome::Kind::kStoppedResumable);
}

TEST_F(SupervisorTest, WorkersThatDoNotRunYetHaveNothingToSave) {
  Start();
  Give(Of(Notice::Kind::kPrepared));
  Stop(StopMode::kAfterSave);
  EXPECT_THAT(NodesTold<EndWorkers>(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(Grace(), absl::Seconds(3));
  EXPECT_THAT(Give(GenerationRecorded{kGeneration}), IsEmpty());
  EndNodes();
  Give(Settled{});
  EXPECT_EQ(Outcome().kind, JobOutcome::Kind::kStoppedResumable);
}

TEST_F(SupervisorTest, WorkersThatStartAgainHaveNothingToSaveEither) {
  Run();
  Fail("a/0", 0);
  EndNodes();
  Settle();
  Stop(StopMode::kAfterSave);
  EXPECT_THAT(NodesTold<EndWorkers>(), ElementsAre("a", "b", "c"));
}

TEST_F(SupervisorTest, AStopOfAFailedAttemptKeepsItFromStartingAgain) {
  Run();
  Fail("a/0", 0);
  Stop(StopMode::kAfterSave);
  EXPECT_THAT(All<ToNode>(), IsEmpty());
  EndNodes();
  Give(Settled{});
  EXPECT_THAT(All<CheckRestart>(), IsEmpty());
  EXPECT_EQ(Outcome().kind, JobOutcome::Kind::kFailed);
  EXPECT_THAT(Outcome().message, HasSubstr("not restarted: a stop was requested"));
}

TEST_F(SupervisorTest, AStopWhileARestartIsCheckedStartsNothing) {
  for (const StopMode mode : {StopMode::kAfterSave, StopMode::kNow}) {
    Make({"a", "b", "c"});
    Run();
    Fail("a/0", 0);
    EndNodes();
    Give(Settled{});
    Stop(mode);
    Give(RestartChecked{});
    EXPECT_THAT(All<ToNode>(), IsEmpty());
    EXPECT_THAT(AgentsStarted(), IsEmpty());
    EXPECT_THAT(All<RecordRestart>(), IsEmpty());
    EXPECT_EQ(Outcome().kind, JobOutcome::Kind::kFailed) << "as if it had come before";
    EXPECT_THAT(Outcome().message, HasSubstr("not restarted: a stop was requested"));
    EXPECT_EQ(Outcome().generation, kGeneration);
  }
}

// ---- hangs --------------------------------------------------------------------------------------

class SupervisorHangTest : public SupervisorTest {
 protected:
  static Standing Board(bool waits) {
    Standing board;
    board.step = 9;
    board.phase = "forward";
    board.is_waiting = waits;
    board.groups = {{.index = 0, .entered = waits ? 2u : 1u, .left = 1}};
    return board;
  }
  // Rank 3, worker 1 of b, keeps all others waiting.
  void ShowBoards() {
    Report("a", BoardsSeen{{{0, Board(true)}, {1, Board(true)}}});
    Report("b", BoardsSeen{{{0, Board(true)}, {1, Board(false)}}});
    Report("c", BoardsSeen{{{0, Board(true)}, {1, Board(true)}}});
  }
  void Hang() {
    Run();
    ShowBoards();
    EXPECT_THAT(Pass(absl::ZeroDuration()), IsEmpty());
    Find("b");
  }
  // Its worker 1 has stood still for long enough, and does nothing else either.
  void Find(const std::string& node) {
    Pass(absl::Seconds(60));
    ASSERT_THAT(NodesTold<FindActivity>(), ElementsAre(node));
    EXPECT_EQ(Told<FindActivity>()[0].second.worker, 1);
    Report(node, ActivitySeen{1, Activity::kIdle});
    Pass(absl::Milliseconds(100));
    ASSERT_THAT(Submitted<Hung>(), SizeIs(1));
  }
};

TEST_F(SupervisorHangTest, WhoeverKeepsTheOthersWaitingIsNamedToTheCoordinator) {
  Hang();
  const Hung hung = Submitted<Hung>().at(0);
  EXPECT_EQ(hung.member, "b/1");
  EXPECT_THAT(hung.description, HasSubstr("stood still for 1m0.1s"));
  EXPECT_EQ(hung.last.step, 9);
  EXPECT_EQ(hung.last.phase, "forward");
  Pass(absl::Seconds(60));
  EXPECT_THAT(actions_, IsEmpty()) << "once";
}

TEST_F(SupervisorHangTest, TheStacksOfAHungWorkerAreTakenBeforeAnyoneEnds) {
  Hang();
  Fail("b/1", 3, "stood still");
  EXPECT_THAT(Told<EndWorkers>(), IsEmpty());
  ASSERT_THAT(Told<ShowStacks>(), SizeIs(1));
  EXPECT_EQ(Told<ShowStacks>()[0].first, "b");
  EXPECT_EQ(Told<ShowStacks>()[0].second.worker, 1);
  EXPECT_THAT(Said(), HasSubstr("rank 3 stood still; its stack goes to its log"));
  EXPECT_THAT(Pass(absl::Seconds(1)), IsEmpty());
  Report("b", StacksShown{1});
  EXPECT_EQ(Grace(), kStopTimeout);
  EXPECT_EQ(Told<EndWorkers>().at(1).second.tail_of, 1);
  Report("b", StacksShown{1});
  EXPECT_THAT(actions_, IsEmpty());
  EndNodes();
  Settle();
  EXPECT_THAT(Said(), HasSubstr("rank 3 failed in step 5: stood still"));
}

TEST_F(SupervisorHangTest, AHangThatIsNotToBeShownEndsTheAttemptAllTheSame) {
  Hang();
  Give(NodeLost{"b", "silent"});
  EXPECT_THAT(Submitted<Exited>(), SizeIs(2));
  Fail("b/1", 3, "stood still");
  EXPECT_THAT(NodesTold<EndWorkers>(), ElementsAre("a", "c")) << "its node is lost";

  Make({"a", "b", "c"});
  Hang();
  Fail("b/1", 3, "stood still");
  Give(NodeLost{"b", "silent"});
  EXPECT_THAT(NodesTold<EndWorkers>(), ElementsAre("a", "c")) << "lost while it shows them";

  Make({"a", "b", "c"});
  Hang();
  Report("b", EndOf("b", 1));
  Fail("b/1", 3, "stood still");
  EXPECT_THAT(NodesTold<EndWorkers>(), ElementsAre("a", "b", "c")) << "it has ended";

  Make({"a", "b", "c"});
  Hang();
  Fail("b/1", 3, "stood still");
  Report("b", NodeEnded{"", true});
  EXPECT_THAT(NodesTold<EndWorkers>(), ElementsAre("a", "c"));
}

TEST_F(SupervisorHangTest, TheThirdInterruptDoesNotWaitForStacks) {
  Hang();
  Fail("b/1", 3, "stood still");
  for (int i = 0; i < 3; ++i) Give(Interrupted{"SIGINT", true});
  EXPECT_EQ(Grace(), absl::ZeroDuration());
  Report("b", StacksShown{1});
  EXPECT_THAT(actions_, IsEmpty());
}

TEST_F(SupervisorHangTest, AnotherFailureThanTheHangEndsTheAttemptAtOnce) {
  Hang();
  Fail("a/0", 0);
  EXPECT_THAT(NodesTold<EndWorkers>(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(Told<ShowStacks>(), IsEmpty());
}

TEST_F(SupervisorHangTest, AWorkerThatIsBusyGetsAsLongAsTheRecipeAllows) {
  Run();
  Report("b", ActivitySeen{1, Activity::kIdle});  // nobody asked
  ShowBoards();
  Pass(absl::ZeroDuration());
  Pass(absl::Seconds(60));
  EXPECT_THAT(NodesTold<FindActivity>(), ElementsAre("b"));
  EXPECT_THAT(Submitted<Hung>(), IsEmpty()) << "it is not known yet what it does";
  Pass(absl::Seconds(1));
  EXPECT_THAT(actions_, IsEmpty()) << "it was asked";
  Report("b", ActivitySeen{1, Activity::kBusy});
  EXPECT_THAT(Pass(absl::Seconds(1)), IsEmpty()) << "the answer is used";
  Pass(absl::Seconds(1));
  EXPECT_THAT(NodesTold<FindActivity>(), ElementsAre("b")) << "and asked for again";
  Report("b", ActivitySeen{1, Activity::kBusy});
  Pass(absl::Minutes(10));
  EXPECT_THAT(Submitted<Hung>(), SizeIs(1));
}

TEST_F(SupervisorHangTest, WorkersThatDoNotGoYetCannotHang) {
  Start();
  ShowBoards();
  Pass(absl::ZeroDuration());
  EXPECT_THAT(Pass(absl::Minutes(5)), IsEmpty());
}

TEST_F(SupervisorHangTest, AFailedAttemptHasNoHangs) {
  Run();
  ShowBoards();
  Pass(absl::ZeroDuration());
  Fail("a/0", 0);
  EXPECT_THAT(Pass(absl::Minutes(5)), IsEmpty());
}

TEST_F(SupervisorHangTest, WorkersThatLeftOrEndedCannotHang) {
  Run();
  ShowBoards();
  Pass(absl::ZeroDuration());
  Leave("b/1", 3);
  ShowBoards();  // was on the way
  Report("a", EndOf("a", 0, 0));
  for (const char* member : {"a/1", "b/0", "c/0", "c/1"}) Leave(member, -1);
  ShowBoards();
  EXPECT_THAT(Pass(absl::Minutes(5)), IsEmpty());
}

TEST_F(SupervisorHangTest, AfterAHangThatWasNoneTheNextIsFound) {
  Hang();  // b/1 is named, but has left in the meantime: the coordinator does not blame it
  Leave("b/1", 3);
  Report("b", BoardsSeen{{{0, Board(true)}}});
  Report("c", BoardsSeen{{{0, Board(true)}, {1, Board(false)}}});
  Pass(absl::ZeroDuration());
  Find("c");
  EXPECT_EQ(Submitted<Hung>().at(0).member, "c/1");
}

TEST_F(SupervisorHangTest, TheNextAttemptStartsItsWatchAnew) {
  for (const bool boards_come_late : {false, true}) {
    Make({"a", "b", "c"});
    Hang();
    Fail("b/1", 3, "stood still");
    Report("b", StacksShown{1});
    EndNodes();
    Settle();
    Record();
    if (boards_come_late) {
      EXPECT_THAT(Pass(absl::ZeroDuration()), IsEmpty());
      EXPECT_THAT(Pass(absl::Minutes(5)), IsEmpty()) << "there are no boards yet";
    }
    ShowBoards();
    EXPECT_THAT(Pass(absl::ZeroDuration()), IsEmpty());
    Find("b");
  }
}

// ---- news ---------------------------------------------------------------------------------------

TEST_F(SupervisorTest, ANewCheckpointIsRecordedOnce) {
  Run();
  EXPECT_THAT(Give(CheckpointSeen{10}), IsEmpty()) << "that of the start";
  Give(CheckpointSeen{20});
  ASSERT_THAT(actions_, SizeIs(1));
  ASSERT_THAT(All<RecordCheckpoint>(), SizeIs(1));
  EXPECT_EQ(All<RecordCheckpoint>()[0].step, 20);
  EXPECT_EQ(All<RecordCheckpoint>()[0].generation, kGeneration);
  EXPECT_THAT(Give(CheckpointSeen{20}), IsEmpty());
  EXPECT_THAT(Give(CheckpointSeen{15}), IsEmpty());
  EXPECT_EQ(supervisor_->checkpoint_step(), 20);
  Fail("a/0", 0);
  EndNodes();
  Give(CheckpointSeen{30});
  EXPECT_THAT(All<RecordCheckpoint>(), SizeIs(1)) << "written in the last moment";
  Settle();
  EXPECT_THAT(Said(), HasSubstr("from the checkpoint of step 30"));
}

TEST_F(SupervisorTest, ALostFolderIsTheEnd) {
  Run();
  Give(FolderLost{EnvironmentError("runs/x is not where it was")});
  EXPECT_THAT(NodesTold<EndWorkers>(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(Grace(), kStopTimeout);
  EXPECT_THAT(Give(FolderLost{EnvironmentError("runs/x is not where it was")}), IsEmpty());
  EndNodes();
  Give(Settled{});
  EXPECT_THAT(All<CheckRestart>(), IsEmpty());
  EXPECT_EQ(Outcome().kind, JobOutcome::Kind::kFailed);
  EXPECT_EQ(Outcome().rank, -1);
  EXPECT_EQ(Outcome().worker_exit_code, static_cast<int>(ExitCode::kEnvironment));
  EXPECT_THAT(Outcome().message, HasSubstr("runs/x is not where it was; not restarted"));
}

TEST_F(SupervisorTest, AFolderThatIsLostWhileNodesAreWaitedForIsTheEndToo) {
  Give(Begin{});
  Give(FolderLost{EnvironmentError("gone")});
  ASSERT_TRUE(Settles());
  Give(Settled{});
  EXPECT_THAT(Outcome().message, HasSubstr("gone"));
}

TEST_F(SupervisorTest, ProgressAndMessagesAreShown) {
  Run();
  Notice notice = Of(Notice::Kind::kProgress);
  notice.rank = 3;
  notice.progress = {6, "step"};
  Give(notice);
  ASSERT_THAT(All<ShowProgress>(), SizeIs(1));
  EXPECT_EQ(All<ShowProgress>()[0].rank, 3);
  EXPECT_EQ(All<ShowProgress>()[0].progress.step, 6);
  EXPECT_EQ(All<ShowProgress>()[0].num_restarts, 0);
  Report("b", NodeMessage{"rank 2 is slow"});
  EXPECT_EQ(Said(), "rank 2 is slow\n");
  Leave("nobody", 1);
  EXPECT_THAT(actions_, IsEmpty());
}

TEST_F(SupervisorTest, NothingComesAfterTheEnd) {
  Run();
  Finish(false);
  EndNodes();
  Give(Settled{});
  ASSERT_THAT(All<Conclude>(), SizeIs(1));
  Give(Interrupted{"SIGINT", true});
  EXPECT_THAT(actions_, IsEmpty());
  Stop(StopMode::kNow);
  EXPECT_THAT(actions_, IsEmpty());
  Fail("a/0", 0);
  EXPECT_THAT(actions_, IsEmpty());
  EXPECT_THAT(Give(CheckpointSeen{99}), IsEmpty());
  EXPECT_THAT(Give(NodeLost{"a", "its agent has ended"}), IsEmpty());
}

}  // namespace
}  // namespace trainctl::rendezvous
