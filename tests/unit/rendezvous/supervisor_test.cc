// What a supervisor decides of attempts, nodes and news.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tests/unit/rendezvous/supervisor_fixture.h"

namespace trainctl::rendezvous {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

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
  EXPECT_EQ(All<RecordFailure>()[0].facts.node, "b");
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

TEST_F(SupervisorTest, NodesThatWillNotDoAreNamedBeforeAnyWorkerStarts) {
  Give(Begin{});
  Give(NodeReady{"a", SlotsOf("a"), {.programs = "1"}});
  Give(NodeReady{"b", SlotsOf("b"), {.programs = "1", .clock_ahead = absl::Hours(2)}});
  Give(NodeReady{"c", SlotsOf("c"), {.programs = "2"}});
  EXPECT_THAT(Said(), HasSubstr("the clock of b is 2h ahead"));
  EXPECT_THAT(All<ToNode>(), IsEmpty());
  ASSERT_TRUE(Settles());
  Give(Settled{});
  EXPECT_THAT(Error(), HasSubstr("c: its workers' program is another one"));
  EXPECT_EQ(ExitCodeFor(All<Conclude>()[0].outcome.status()), ExitCode::kEnvironment);
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
  EXPECT_EQ(
      Said(),
      "rank 3 on b failed in step 5: killed by SIGSEGV (11)\n  | line 1\n  | line 2\nrestarting all workers "
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
  EXPECT_EQ(
      outcome.message,
      "rank 3 on b failed in step 5: killed by SIGSEGV (11); not restarted: exit code 3 means that the same "
      "start would fail again");
}

TEST_F(SupervisorTest, AnAnnouncedExitCodeCountsIfTheWorkerIsKilledFirst) {
  Run();
  Fail("b/1", 3, "text/07.txt has changed", 5, static_cast<int>(ExitCode::kBadData));
  EndNodes();
  Give(Settled{});
  EXPECT_EQ(Outcome().worker_exit_code, static_cast<int>(ExitCode::kBadData));
  EXPECT_EQ(
      Outcome().message,
      "rank 3 on b failed in step 5: text/07.txt has changed; not restarted: exit code 6 means that the same "
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
  EXPECT_THAT(Said(), HasSubstr("rank 3 on b failed"));
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
  EXPECT_THAT(Said(), HasSubstr("rank 4 on c failed during start-up: did not join within 2m"));
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
