// What a supervisor decides when it is asked to stop.
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
using testing::SizeIs;

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

TEST_F(SupervisorTest, AStopWithoutACheckpointDoesNotClaimToHaveSaved) {
  for (const bool saves : {false, true}) {
    Make({"a", "b", "c"}, 3, /*checkpoint_step=*/-1);
    Run();
    Stop(StopMode::kAfterSave);
    Finish(/*stopped=*/true);
    EndNodes();
    if (saves) Give(CheckpointSeen{3});
    Give(Settled{});
    EXPECT_EQ(Outcome().kind, JobOutcome::Kind::kStoppedResumable);
    EXPECT_EQ(Outcome().message, saves ? "saved and stopped" : "stopped before the first checkpoint");
  }
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

}  // namespace
}  // namespace trainctl::rendezvous
