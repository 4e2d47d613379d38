// What a supervisor decides of workers that stand still.
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

TEST_F(SupervisorHangTest, AllRanksShowTheirStacksBeforeAnyoneEnds) {
  Hang();
  Fail("b/1", 3, "stood still");
  EXPECT_THAT(Told<EndWorkers>(), IsEmpty());
  const auto told = Told<ShowStacks>();
  ASSERT_THAT(NodesTold<ShowStacks>(), ElementsAre("a", "b", "c"));
  EXPECT_EQ(told[0].second.hung, -1);
  EXPECT_EQ(told[1].second.hung, 1);
  EXPECT_EQ(told[2].second.hung, -1);
  EXPECT_THAT(Said(), HasSubstr("rank 3 stood still; the stacks of all ranks go to their logs"));
  EXPECT_THAT(Pass(absl::Seconds(1)), IsEmpty());
  for (const char* node : {"b", "a", "b"}) {
    Report(node, StacksShown{});
    EXPECT_THAT(actions_, IsEmpty()) << "c has not answered";
  }
  Report("c", StacksShown{});
  EXPECT_EQ(Grace(), kStopTimeout);
  EXPECT_EQ(Told<EndWorkers>().at(1).second.tail_of, 1);
  Report("c", StacksShown{});
  EXPECT_THAT(actions_, IsEmpty());
  EndNodes();
  Settle();
  EXPECT_THAT(Said(), HasSubstr("rank 3 on b failed in step 5: stood still"));
}

TEST_F(SupervisorHangTest, ANodeThatShowsNoStacksHoldsNobodyBeyondTheDeadline) {
  Hang();
  Fail("b/1", 3, "stood still");
  Report("a", StacksShown{});
  Report("b", StacksShown{});
  EXPECT_THAT(Pass(kStacksTimeout - absl::Milliseconds(1)), IsEmpty());
  Pass(absl::Milliseconds(1));
  EXPECT_THAT(NodesTold<EndWorkers>(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(Pass(absl::Seconds(1)), IsEmpty()) << "once";
  Report("c", StacksShown{});
  EXPECT_THAT(actions_, IsEmpty());
}

TEST_F(SupervisorHangTest, ANodeWhoseWorkersHaveEndedIsNotAskedForStacks) {
  Hang();
  Give(NodeLost{"c", "silent"});
  Fail("b/1", 3, "stood still");
  EXPECT_THAT(NodesTold<ShowStacks>(), ElementsAre("a", "b"));
  Report("a", StacksShown{});
  Report("b", StacksShown{});
  EXPECT_THAT(NodesTold<EndWorkers>(), ElementsAre("a", "b"));
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
  for (const char* node : {"a", "b", "c"}) {
    Report(node, StacksShown{});
    EXPECT_THAT(actions_, IsEmpty());
  }
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
    for (const char* node : {"a", "b", "c"}) Report(node, StacksShown{});
    EXPECT_THAT(NodesTold<EndWorkers>(), SizeIs(3));
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

}  // namespace
}  // namespace trainctl::rendezvous
